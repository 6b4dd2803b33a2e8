from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.sample_trees import LOOKUP_TREE, MATERIAL, TASKS, TREES, archive, entry, run_tree
from whale.search.gate import clean, outside_space
from whale.search.mutation import CROSSOVERS, OPERATORS, MutationProposer
from whale.search.mutation.proposer import SEPARATOR, draws, mutate, ranked
from whale.search.tree import check_tree, digest
from whale.search.types import Archive, ArchiveEntry, Proposal


def scored(proposals: Sequence[Proposal], start: int, score: float = 0.5) -> tuple[ArchiveEntry, ...]:
    return tuple(
        replace(entry(f"c{start + i:03}", p.files, score, axis=p.axis), parents=p.parents)
        for i, p in enumerate(proposals)
    )


def search(name: str, seed: int, iterations: int, count: int = 3, **options: object) -> tuple[Archive, list[Proposal]]:
    proposer, store = MutationProposer(**options), archive(name)  # type: ignore[arg-type]  # options of a test
    made: list[Proposal] = []
    for iteration in range(1, iterations + 1):
        proposals = proposer.propose(store, count=count, seed=seed, cycle=1, iteration=iteration)
        made += proposals
        store = replace(store, entries=store.entries + scored(proposals, len(store.entries)))
    return store, made


@given(st.sampled_from(sorted(TREES)), st.integers(0, 2**63 - 1))
@settings(deadline=None, max_examples=10)
def test_every_proposal_runs_is_new_and_within_the_limits(name: str, seed: int) -> None:
    store, made = search(name, seed, 3)
    assert len(made) == 9
    assert len({digest(e.files) for e in store.entries}) == 10, "no tree comes twice"
    known = {e.candidate for e in store.entries}
    for proposal in made:
        run_tree(proposal.files, TASKS[name])
        assert check_tree(proposal.files) is None
        assert clean(proposal) == proposal, "the texts are safe and bounded as they are"
        assert proposal.hypothesis and 1 <= len(proposal.parents) <= 2 and set(proposal.parents) <= known
        assert len(proposal.axis.split(SEPARATOR)) <= 2


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None, max_examples=8)
def test_proposals_are_a_function_of_archive_seed_cycle_and_iteration(seed: int, cycle: int, iteration: int) -> None:
    def once() -> Sequence[Proposal]:
        return MutationProposer().propose(archive("sums"), count=3, seed=seed, cycle=cycle, iteration=iteration)

    assert once() == once()


def test_another_iteration_and_another_seed_give_other_proposals() -> None:
    def first(seed: int, iteration: int) -> list[str]:
        made = MutationProposer().propose(archive("sums"), count=3, seed=seed, cycle=1, iteration=iteration)
        return [digest(p.files) for p in made]

    assert first(1, 1) != first(1, 2) and first(1, 1) != first(2, 1)


@pytest.mark.parametrize("pair", [0.0, 1.0])
@pytest.mark.parametrize("seed", [0])
def test_every_operator_that_applies_is_tried_before_one_is_tried_again(seed: int, pair: float) -> None:
    store, made = search("sums", seed, 14, count=2, pair_probability=pair)
    uses: Counter[str] = Counter()
    for number, proposal in enumerate(made):
        names = proposal.axis.split(SEPARATOR)
        if any(uses[name] for name in names):
            untried = [o for o in OPERATORS if not uses[o.name]]
            known = {digest(e.files) for e in store.entries[: number + 1]}
            # An untried operator has no child of any parent that is not known, for a handful of draws.
            for operator in untried:
                for parent in store.entries[: 1 + number // 2 * 2]:
                    assert mutate(operator, parent.files, MATERIAL["sums"], known, Random(5)) is None, operator.name
            break
        uses.update(names)
    else:
        pytest.fail("no operator was ever tried again")
    assert len(uses) >= 20


def test_the_first_candidates_differ_in_kind() -> None:
    family = {o.name: o.family for o in OPERATORS} | {c.name: c.family for c in CROSSOVERS}
    for seed in range(5):
        _, made = search("lookup", seed, 2, pair_probability=0.0)
        families = [family[proposal.axis] for proposal in made]
        assert len(set(families)) == len(families) == 6


def test_crossover_needs_two_parents_and_names_both() -> None:
    _, made = search("lookup", 3, 10)
    crossed = [proposal for proposal in made if proposal.axis.startswith("crossover")]
    assert crossed and all(len(set(proposal.parents)) == 2 for proposal in crossed)
    _, first = search("lookup", 3, 1, count=1)
    assert len(first[0].parents) == 1


def test_only_valid_harnesses_with_a_current_score_are_parents() -> None:
    other = LOOKUP_TREE | {"prompts/system.md": b"Other.\n"}
    store = archive(
        "lookup",
        entry("old", other | {"a.txt": b"1"}, 0.9, current=False),
        entry("bad", other | {"a.txt": b"2"}, 0.9, valid=False),
        entry("none", other | {"a.txt": b"3"}, None),
        entry("good", other, 0.25),
    )
    assert [e.candidate for e in ranked(store.entries)] == ["c000", "good"]
    parents: Counter[str] = Counter()
    for seed in range(12):
        made = MutationProposer().propose(store, count=2, seed=seed, cycle=1, iteration=1)
        parents.update(name for proposal in made for name in proposal.parents)
    assert set(parents) == {"c000", "good"}


def test_better_parents_are_drawn_more_often_and_none_never() -> None:
    entries = ranked(entry(f"c{i}", LOOKUP_TREE, 1.0 - i / 10) for i in range(4))
    first = Counter(draws(entries, Random(seed))[0].candidate for seed in range(800))
    assert first["c0"] > first["c1"] > first["c2"] and first["c3"] > 0


def test_what_is_in_the_archive_is_not_proposed_again_even_if_invalid() -> None:
    made = MutationProposer().propose(archive("sums"), count=3, seed=9, cycle=1, iteration=1)
    failed = tuple(replace(e, valid=False, score=None, axis="") for e in scored(made, 1))
    again = MutationProposer().propose(archive("sums", *failed), count=3, seed=9, cycle=1, iteration=1)
    assert not {digest(p.files) for p in again} & {digest(p.files) for p in made}


def test_without_a_parent_or_a_way_to_change_it_fewer_come() -> None:
    assert MutationProposer().propose(Archive((), ()), count=3, seed=0, cycle=1, iteration=1) == []
    only = [operator for operator in OPERATORS if operator.name == "examples-reorder"]
    proposer = MutationProposer(operators=only, crossovers=())
    made = proposer.propose(archive("sums"), count=3, seed=0, cycle=1, iteration=1)
    assert len(made) == 1, "two examples have one other order"


def test_what_is_left_out_is_never_used_and_an_unknown_name_is_refused() -> None:
    families = {o.name: o.family for o in OPERATORS} | {o.name: o.family for o in CROSSOVERS}
    _, made = search("lookup", 5, 12, without=["numbers", "crossover", "vote"])
    used = {name for proposal in made for name in proposal.axis.split(SEPARATOR)}
    assert made and not {families[name] for name in used} & {"numbers", "crossover"}
    assert "vote" not in used and "turns" in {families[name] for name in used}
    with pytest.raises(ValueError, match="numberz"):
        MutationProposer(without=["numberz"])
    with pytest.raises(ValueError, match="no operator is left"):
        MutationProposer(without=sorted(set(families.values())))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", sorted(TREES))
def test_what_the_search_space_refuses_is_not_proposed(name: str, seed: int) -> None:
    """A search over the prompts alone gets as many candidates as one over everything, and none is refused unscored."""
    outside = partial(outside_space, base=TREES[name], space="prompts")
    seen = replace(archive(name), outside=outside)
    for iteration in range(1, 5):
        made = MutationProposer().propose(seen, count=3, seed=seed, cycle=1, iteration=iteration)
        assert len(made) == 3
        assert [outside(proposal.files) for proposal in made] == [None] * 3
        assert {name for proposal in made for name in proposal.axis.split("+")} <= {
            "prompt-delete", "prompt-duplicate", "prompt-move",
        }  # fmt: skip
        scored = [entry(f"c{iteration}{i}", p.files, 0.5, axis=p.axis) for i, p in enumerate(made)]
        seen = replace(seen, entries=(*seen.entries, *scored))
