"""A suite under the real judge: two members, and kernels that are wrong, slow or missing at one of them."""

from pathlib import Path

import pytest
from narrowing import present
from planted import POLICY, ROOT, V5E, naive, norm, request
from refusals import assert_failed, refused

from harness import contest as contests
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.evaluate.request import Listener
from harness.judge.verdict import decision, early_rejection
from harness.loop import scaffold
from harness.operators import Attention, AttentionBackward, Matmul, Member, QuantizedMatmul, RMSNorm, Suite
from harness.records import Evidence, Trace, weighted_geometric_mean

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

SHORT, LONG = (RMSNorm(rows=rows, columns=256, residual=False) for rows in (64, 512))
SUITE = Suite(members=(Member(name="short", problem=SHORT), Member(name="long", problem=LONG, weight=3.0)))
SHAPES = "    rows, columns = x.shape\n"
FINISHED = "    y_ref[...] = (h * scale"


def blocks(short: int, long: int) -> str:
    """The norm's kernel with another number of rows in a block at each member."""
    return norm((SHAPES, f"{SHAPES}    BR = {long} if rows == 512 else {short}\n"))


def programs(contest: Path) -> SeenPrograms:
    """The programs that were compiled and simulated for this contest."""
    return SeenPrograms(directory=contest / "programs", judge="a judge")


def judged(
    contest: Path, kernel: str, *, suite: Suite = SUITE, against: Evidence | None = None, on: str | None = None
) -> tuple[Evidence, list[str]]:
    """The evidence, and the stages that began, in their order."""
    begun: list[str] = []

    def progress(stage: str, state: str, seconds: float) -> None:
        if state == "start":
            begun.append(stage)

    def is_slower(judged_evidence: Evidence) -> bool:
        return against is not None and early_rejection.is_slower(judged_evidence, against, POLICY, V5E)

    listener = Listener(is_slower=is_slower if against else None, progress=progress)
    return evaluation.evaluate(request(contest, kernel, suite, on=on, programs=programs(contest)), listener), begun


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def first(contest: Path) -> tuple[Evidence, list[str]]:
    """The good kernel, whose programs nothing has seen before."""
    return judged(contest, norm())


@pytest.fixture(scope="module")
def good(first: tuple[Evidence, list[str]]) -> Evidence:
    return first[0]


def seconds(evidence: Evidence) -> float:
    return present(present(evidence.latency).seconds)


def test_a_good_kernel_passes_at_every_member(good: Evidence) -> None:
    assert good.failure is None
    assert [member.name for member, _ in good.named_members] == ["short", "long"]
    assert all(each.checks and each.failure is None for each in good.members)
    assert {check.shape for check in good.all_checks if check.mode == "full"} == {(64, 256), (512, 256)}
    assert decision.decide(good, None, None, POLICY, V5E).outcome == "accept"


def test_its_time_is_the_weighted_geometric_mean(good: Evidence) -> None:
    short, long = map(seconds, good.members)
    assert seconds(good) == pytest.approx(short**0.25 * long**0.75)
    assert good.latency is not None
    assert good.latency.plus_minus_seconds is not None
    # Errors have the same sign at all shapes: the mean is as uncertain as its members.
    each = [each_evidence.latency.plus_minus_seconds / seconds(each_evidence) for each_evidence in good.members]  # type: ignore[union-attr,operator]
    assert min(each) <= good.latency.plus_minus_seconds / seconds(good) <= max(each)


def test_each_member_is_compiled_once_and_traced_before_any(first: tuple[Evidence, list[str]]) -> None:
    _, begun = first
    assert [stage for stage in begun if stage.endswith(("trace", "compile"))] == [
        "short trace",
        "long trace",
        "short compile",
        "long compile",
    ]
    # The latencies of all members come before any check at a full shape.
    first_check = next(place for place, stage in enumerate(begun) if "correctness" in stage)
    assert first_check > begun.index("long simulate")


def test_a_kernel_that_is_right_at_one_member_only_fails(contest: Path) -> None:
    wrong = f"{FINISHED} * (1.5 if pl.num_programs(0) == 32 else 1)"
    result, _ = judged(contest, norm((FINISHED, wrong)))
    assert_failed(result.failure, "correctness", "wrong-result")
    assert present(result.failure).message.startswith("long: ")
    verdict = decision.decide(result, None, None, POLICY, V5E)
    assert verdict.outcome == "failed"


def test_a_shortcut_for_one_member_fails(contest: Path) -> None:
    # A kernel that is right only if a row's mean square is 1, and only for a shape that the suite names.
    shortcut = (
        f"{SHAPES}    if rows == 64:\n"
        "        return pl.pallas_call(lambda x_ref, w_ref, y_ref: y_ref.__setitem__(..., x_ref[...] * w_ref[...]), "
        "out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, w.reshape(1, columns))\n"
    )
    result, begun = judged(contest, norm((SHAPES, shortcut)))
    assert present(result.failure).message.startswith("short: ")
    # The other member is only traced.
    assert [stage for stage in begun if stage.startswith("long")] == ["long trace"]


@pytest.mark.slow
def test_a_member_that_does_not_trace_ends_it_before_anything_is_compiled(contest: Path) -> None:
    result, begun = judged(contest, norm(("BR = 16", "BR = 128")))
    assert_failed(result.failure, "contract", "trace-error")
    assert present(result.failure).message.startswith("short: ")
    assert begun == ["short trace"]


def test_a_gain_of_the_mean_that_costs_one_member_too_much_is_rejected(contest: Path, good: Evidence) -> None:
    # The candidate takes far less time at the heavier member, and more at the other.
    candidate, _ = judged(contest, blocks(8, 128), against=good)
    assert seconds(candidate) < 0.9 * seconds(good)
    verdict = decision.decide(candidate, good, None, POLICY, V5E)
    assert verdict.outcome == "reject"
    assert verdict.reasons[0].startswith("short takes ")
    assert "no member may lose more than 1.0%" in verdict.reasons[0]
    assert {member.name: (member.time_ratio or 0) > 1 for member in verdict.members} == {"short": True, "long": False}
    # This is certain without checks at the full shape, so none is run for a member that has a smaller shape.
    assert all(member.unchecked for member in candidate.members)
    assert not any(check.mode == "full" for check in candidate.members[1].checks)


@pytest.mark.slow
def test_a_gain_at_one_member_is_a_gain_where_the_other_stays_the_same(contest: Path) -> None:
    champion, _ = judged(contest, blocks(32, 16))
    candidate, _ = judged(contest, blocks(32, 64), against=champion)
    assert not candidate.unchecked
    assert decision.is_simulated_gain(candidate, champion, POLICY, V5E)
    verdict = decision.decide(candidate, champion, None, POLICY, V5E)
    # The pair was not simulated again.
    assert verdict.outcome == "inconclusive"
    ratios = [each.time_ratio for each in verdict.members]
    assert ratios[0] == 1
    weights = [member.weight for member, _ in candidate.named_members]
    assert verdict.time_ratio == pytest.approx(weighted_geometric_mean([r or 0 for r in ratios], weights))


def test_forward_and_backward_are_one_suite(contest: Path, tmp_path: Path) -> None:
    backward = scaffold.text("attention-backward", "kernel.py").decode()
    (folder := tmp_path / "both").mkdir()
    names = ("KERNEL_NAME", "PROBLEM_DESCRIPTION", "BQ", "BKV", "VMEM_LIMIT", "CAUSAL", "compute_flops", "get_tiling")
    for name in names:
        backward = backward.replace(name, f"BACKWARD_{name}")
    backward = backward.replace("def kernel_fn(", "def backward(")
    members = (
        Member(name="forward", problem=Attention(sequence=256, head_dim=128)),
        Member(name="backward", problem=AttentionBackward(sequence=256, head_dim=128), function="backward"),
    )
    suite = Suite(members=members)
    result, _ = judged(folder, f"{naive()}\n{backward}", suite=suite)
    assert result.failure is None, result.failure
    assert [len(member.problem.outputs) for member in result.members] == [1, 3]
    lacking, _ = judged(folder, naive(), suite=suite)
    assert_failed(lacking.failure, "contract", "missing-kernel-fn")
    assert present(lacking.failure).message.startswith(
        "backward: expected kernel.py to define backward(q, k, v, o, lse, do)"
    )


def test_who_asks_after_the_trace_hears_of_all_members_at_once(contest: Path, good: Evidence) -> None:
    heard: list[Trace] = []
    asked = request(contest, norm(), SUITE, work="0002", checked=False, programs=programs(contest))
    evaluation.evaluate(asked, Listener(after_trace=heard.append))
    assert [trace.fingerprint for trace in heard] == [good.trace.fingerprint if good.trace else ""]


def test_a_device_does_not_time_a_suite(contest: Path) -> None:
    with refused("suite-not-timed", "expected simulated times for a suite"):
        judged(contest, norm(), on="cpu")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((Member(name="one", problem=SHORT),), "two or more members"),
        ((Member(name="one", problem=SHORT), Member(name="one", problem=LONG)), "members with different names"),
        ((Member(name="../one", problem=SHORT), Member(name="two", problem=LONG)), "expected a name"),
        ((Member(name="one", problem=SHORT, weight=0), Member(name="two", problem=LONG)), "weight above 0"),
        ((Member(name="one", problem=SHORT, function="a b"), Member(name="two", problem=LONG)), "name of a function"),
    ],
)
def test_what_is_no_suite_is_refused(members: tuple[Member, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Suite(members=members)


def test_members_of_two_peaks_have_no_utilisation_together() -> None:
    mixed = Suite(
        members=(
            Member(name="one", problem=QuantizedMatmul(m=256, k=256, n=256, activations="int8")),
            Member(name="two", problem=Matmul(m=256, k=256, n=256)),
        )
    )
    with pytest.raises(ValueError, match="multiply in one dtype"):
        mixed.statement()


def test_members_may_be_problems_of_the_contest_itself(tmp_path: Path) -> None:
    softmax = ROOT / "tests" / "fixtures" / "softmax"
    prepare = (softmax / "prepare.py").read_text()
    stated = "    return Softmax(rows=ROWS, columns=COLUMNS)\n"
    assert stated in prepare
    members = (
        "    from harness.operators import Member, Suite\n\n    return Suite(members=tuple(\n"
        "        Member(name=f'rows-{rows}', problem=Softmax(rows=rows, columns=256)) for rows in (256, 512)))\n"
    )
    (tmp_path / "prepare.py").write_text(prepare.replace(stated, members))
    (tmp_path / "kernel.py").write_text((softmax / "kernel.py").read_text())
    loaded = contests.load(tmp_path)
    assert isinstance(loaded.problem, Suite)
    result, _ = judged(tmp_path, (tmp_path / "kernel.py").read_text(), suite=loaded.problem)
    assert result.failure is None, result.failure
    assert [each.problem.title for each in result.members] == [
        member.problem.statement().title for member in loaded.problem.members
    ]
    # A member's weight is part of the problem.
    (tmp_path / "prepare.py").write_text(
        prepare.replace(stated, members.replace("columns=256)", "columns=256), weight=rows"))
    )
    assert contests.load(tmp_path).problem_digest != loaded.problem_digest


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ("Member(name='one', problem=Softmax(rows=512, columns=256)),", "two or more members"),
        ("Member(name='one', problem=3), Member(name='two', problem=4)", "a int without statement"),
    ],
)
def test_a_prepare_that_states_no_suite_is_refused(tmp_path: Path, members: str, message: str) -> None:
    softmax = ROOT / "tests" / "fixtures" / "softmax"
    prepare = (softmax / "prepare.py").read_text().partition("\ndef problem()")[0]
    returned = f"Suite(members=({members}))"
    suite = f"def problem():\n    from harness.operators import Member, Suite\n\n    return {returned}\n"
    (tmp_path / "prepare.py").write_text(f"{prepare}\n{suite}")
    (tmp_path / "kernel.py").write_text("")
    with refused("bad-prepare", message):
        contests.load(tmp_path)
