"""The states in which the stages of an evaluation end."""

from harness.judge.evaluate.clock import StageClock


def test_a_stage_of_which_a_job_failed_ends_as_failed_whatever_becomes_of_the_others() -> None:
    ended: list[tuple[str, str]] = []
    clock = StageClock(lambda name, state, _: ended.append((name, state)))
    for _ in range(2):
        clock.begin("check")
        clock.begin("compile")
    clock.fail("check", "wrong-result")
    clock.close("check", "wrong-result", goes_on=False)
    clock.close("compile", "done", goes_on=False)
    clock.close("compile", "not needed", goes_on=False)
    clock.end_all("not needed")
    # A later job of the same name is a new stage.
    clock.begin("check")
    clock.close("check", "done", goes_on=False)
    assert ended == [
        ("check", "start"),
        ("compile", "start"),
        ("compile", "not needed"),
        ("check", "wrong-result"),
        ("check", "start"),
        ("check", "done"),
    ]
