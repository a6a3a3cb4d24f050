"""The Random Access Model (RAM): who reaches the server. One file per law; ``LAWS``: word typed → class."""

from fedrage_flwr.settings import NameTable

LAWS: NameTable = {
    "bernoulli": "fedrage_flwr.availability.bernoulli:Bernoulli",
    "exponential": "fedrage_flwr.availability.exponential:Exponential",
    "full": "fedrage_flwr.availability.full:Full",
    "inclusion": "fedrage_flwr.availability.inclusion:Inclusion",
    "markov": "fedrage_flwr.availability.markov:Markov",
    "natural": "fedrage_flwr.availability.natural:Natural",
    "rare": "fedrage_flwr.availability.rare:Rare",
    "subsets": "fedrage_flwr.availability.subsets:Subsets",
    "trace": "fedrage_flwr.availability.trace:Trace",
    "uniform": "fedrage_flwr.availability.uniform:Uniform",
    "weighted": "fedrage_flwr.availability.weighted:Weighted",
}
