"""The former place of `judge_contest`, under which the prepare.py of contests imports it."""

from harness.shell.main import judge_contest as judge_contest
