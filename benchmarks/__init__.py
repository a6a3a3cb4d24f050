"""Speed and memory against references: ``python -m benchmarks``; tables and what they mean in docs/performance.md."""
