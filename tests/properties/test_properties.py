"""What holds for every input Hypothesis can think of: laws, partitions, means, overrides."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrage_flwr.availability import LAWS
from fedrage_flwr.config import Config, compose_config, validate
from fedrage_flwr.data import load_dataset, partition
from fedrage_flwr.errors import UserError
from fedrage_flwr.records import weighted_mean
from fedrage_flwr.settings import lookup

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def one_line(error):
    assert str(error).strip()
    assert "\n" not in str(error)


def law_of(*overrides):
    config = validate(compose_config(list(overrides)))
    return lookup(LAWS, config.ram.name)(config.ram, config.num_clients, config.rare_clients, config.seed)


@few
@given(
    st.lists(st.sampled_from([0.0, 1e-9, 0.3, 1.0, 1e6]), min_size=1, max_size=8), st.integers(1, 8), st.integers(0, 99)
)
def test_weighted_laws(weights, participants, seed):
    """Sorted ids without repetition, as many as asked for, never one of weight zero; the marginals are a distribution."""
    n = len(weights)
    words = [f"num_clients={n}", "rare_clients=0", f"ram.weights={weights}", f"ram.clients_per_round={participants}"]
    try:
        law = law_of("ram=weighted", f"seed={seed}", *words)
    except UserError:
        assert participants > sum(weight > 0 for weight in weights)
        return
    drawn = [law.sample(round).tolist() for round in (1, 2, 3)]
    for ids in drawn:
        assert ids == sorted(set(ids))
        assert len(ids) == participants
        assert all(weights[i] > 0 for i in ids)
    assert law.sample(2).tolist() == drawn[1]
    assert law.marginals().values.sum() == pytest.approx(1)
    assert ((law.inclusion().values >= 0) & (law.inclusion().values <= 1 + 1e-12)).all()


@few
@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 6), st.integers(2, 12))
def test_a_markov_law_goes_on_from_its_state(on_rate, off_rate, n, stop):
    words = [f"num_clients={n}", "rare_clients=0", f"ram.on_rate={on_rate}", f"ram.off_rate={off_rate}"]
    try:
        whole, first, second = (law_of("ram=markov", *words) for _ in range(3))
    except UserError:
        assume(False)
    expected = [whole.sample(round).tolist() for round in range(1, 15)]
    assert [first.sample(round).tolist() for round in range(1, stop)] == expected[: stop - 1]
    second.load_state_dict(first.state_dict())
    assert [second.sample(round).tolist() for round in range(stop, 15)] == expected[stop - 1 :]


@few
@given(
    st.sampled_from(["iid", "dirichlet", "pathological", "quantity", "rare_classes"]),
    st.integers(1, 40),
    st.integers(0, 9),
)
def test_partitions_share_every_example_once(word, n, seed):
    words = [f"partition={word}", f"num_clients={n}", f"partition.seed={seed}", f"rare_clients={min(3, n - 1)}"]
    config = validate(compose_config(words))
    dataset = load_dataset(config.dataset)
    try:
        shared = partition(config.partition, dataset, config.all_clients, config.rare_clients)
    except UserError as error:
        one_line(error)
        return
    assert len(shared.clients) == n
    for split, examples in (("train", dataset.train.labels), ("test", dataset.test.labels)):
        positions = np.concatenate([getattr(client, split) for client in shared.clients])
        assert len(np.unique(positions)) == len(positions)
        assert set(positions) <= set(range(len(examples)))
    assert all(len(client.train) for client in shared.clients)


@given(
    hnp.arrays(st.sampled_from([np.float32, np.float64, np.float16]), hnp.array_shapes(min_dims=0, max_dims=3, max_side=4),
               elements=st.integers(-8, 8)),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.randoms(),
)  # fmt: skip
def test_weighted_means(array, weights, random):
    """Dtype and shape are kept, the value is the mean, a weight of zero hides a NaN, and inputs stay as they were."""
    copies = [
        array * array.dtype.type(k + 1) if weight else np.full_like(array, np.nan) for k, weight in enumerate(weights)
    ]
    replies = [{"a": np.asarray(copy), "count": np.array(k)} for k, copy in enumerate(copies)]
    if not sum(weights):
        with pytest.raises(ValueError, match="sum to zero"):
            weighted_mean(replies, weights)
        return
    before = [reply["a"].copy() for reply in replies]
    mean = weighted_mean(replies, weights)
    factor = sum(weight * (k + 1) for k, weight in enumerate(weights)) / sum(weights)
    assert (mean["a"].dtype, mean["a"].shape) == (array.dtype, array.shape)
    np.testing.assert_allclose(mean["a"].astype(float), array.astype(float) * factor, rtol=2e-3, atol=1e-6)
    assert mean["count"].dtype.kind == "i"
    for reply, old in zip(replies, before, strict=True):
        np.testing.assert_array_equal(reply["a"], old)
    order = list(range(len(weights)))
    random.shuffle(order)
    other = weighted_mean([replies[i] for i in order], [weights[i] for i in order])
    np.testing.assert_allclose(other["a"].astype(float), mean["a"].astype(float), rtol=2e-3, atol=1e-6)


KEYS = ("seed", "num_clients", "num_rounds", "client.lr", "client.alpha", "client.beta_range", "ram.clients_per_round", "device",
        "strategy", "ram", "partition", "model.hidden", "engine.cohort", "evaluate.faa_lrs", "resume", "nonsense", "client",
        "hydra.run.dir", "checkpoint_every", "max_loss", "strategy.name", "+new", "~seed", "++client.lr")  # fmt: skip
VALUES = ("0", "1", "-1", "1e-3", "nan", "inf", "null", "true", "on", "007", "[]", "[1,2]", "[0.1,b]", "{a: 1}", "{}", "''",
          "a=b", "1,2", "range(3)", "${seed}", "${nowhere}", "${oc.env:NOT_SET_ANYWHERE}", "???", "'", "[", "rare", "fedavg",
          "iid", "ä", "a/b", "@x", "|")  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.builds("{}={}".format, st.sampled_from(KEYS), st.sampled_from(VALUES) | st.text(max_size=6)), max_size=3
    )
)
def test_overrides_are_accepted_or_refused_in_one_line(overrides):
    try:
        assert isinstance(validate(compose_config(overrides)), Config)
    except UserError as error:
        one_line(error)
