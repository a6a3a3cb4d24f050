"""Tables, statistics and the verdict on the papers' claims, from finished runs."""
