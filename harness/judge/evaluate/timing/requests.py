"""The requests to the timing process."""

import secrets
from pathlib import Path

from harness.judge.evaluate.draws import seed
from harness.judge.evaluate.messages import MeasureRequest
from harness.records import Policy


def measure_request(
    artifacts: tuple[Path, ...], pickled_problem: Path, policy: Policy, profiles: Path, session: str, *, deep: bool
) -> MeasureRequest:
    """The request to time these programs as `policy` states; the profile is the session `SESSION-...` in `profiles`."""
    profiles.mkdir(parents=True, exist_ok=True)
    return MeasureRequest(
        artifacts=tuple(map(str, artifacts)),
        problem=str(pickled_problem),
        seed=seed(),
        warmup_calls=policy.warmup_calls,
        profiled_calls=policy.profiled_calls,
        rounds=policy.measured_pairs,
        deep=deep,
        profile_directory=str(profiles),
        session=f"{session}-{secrets.token_hex(4)}",
    )
