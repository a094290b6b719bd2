"""Passes noise through the real decision, and counts how many changes without and with a real gain are accepted.

Every attempt is the ratchet's own paired benchmark (its loop over looks, its ruling on the pairs); only the seconds
come from `false_accepts_noise` instead of a device. Goals: on every machine, at most 0.1 % of 10,000 attempts without a
gain are accepted; at the spread of published device times, at least 95 % of true gains of 3 % are accepted.
Run: python benchmarks/false_accepts.py [--write] [ATTEMPTS]    (minutes; --write needs matplotlib, extra `bench`)
"""

import argparse

import false_accepts_replays as replays


def main() -> None:
    """Prints the figures, and with --write writes the page and its plot. Exits with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attempts", nargs="?", type=int, default=replays.NULL_ATTEMPTS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results = replays.run(options.attempts)
    print(f"in one ledger, all machines in turn: {results.in_one_ledger} of {options.attempts} accepted")
    print(
        f"false accepts at most {results.false_rate:.3%} (goal {replays.GOAL_FALSE:.1%}), power at least "
        f"{min(power.rate for _, power in results.powers):.1%} (goal {replays.GOAL_POWER:.0%}), {results.seconds:.0f} s"
    )
    if options.write:
        # matplotlib is in the extra `bench` only.
        import false_accepts_page

        false_accepts_page.write(results)
    raise SystemExit(0 if results.reaches_its_goals else 1)


if __name__ == "__main__":
    main()
