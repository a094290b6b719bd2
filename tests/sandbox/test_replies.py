"""A child's replies are cut and cleaned on arrival, and no reply ends the judging process."""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import attack

from harness.judge.evaluate.messages import TraceReply
from harness.records import Claims, Failure, Trace
from harness.sandbox import replies, strip_paths

pytestmark = pytest.mark.long

# A child that takes the channel and the request's number from the frames above it, and sends its own answer.
ANSWER = """
import sys, struct, os
frame = sys._getframe()
while "request" not in frame.f_locals or "channel" not in frame.f_locals:
    frame = frame.f_back
nonce, channel = frame.f_locals["request"].nonce.encode(), frame.f_locals["channel"]
def answer(body):
    channel.sendall(struct.pack("!Q", len(nonce) + len(body)) + nonce + body)
    os._exit(0)
"""


def is_harmless(text: str) -> bool:
    return all(c in "\n\t" or unicodedata.category(c)[0] != "C" for c in text)


def failure(directory: Path, code: str) -> Failure:
    reply, _ = attack(directory, code, are_confined=True)
    assert isinstance(reply, Failure), reply
    json.dumps([reply.kind, reply.message, reply.detail]).encode("ascii")
    assert is_harmless(reply.kind + reply.message + reply.detail)
    assert "\n" not in reply.message
    assert len(reply.kind) <= 60
    assert len(reply.message) <= strip_paths.MESSAGE_CHARACTERS
    assert len(reply.detail) <= strip_paths.DETAIL_CHARACTERS
    assert max(map(len, reply.detail.split("\n"))) <= strip_paths.LINE_CHARACTERS
    return reply


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            "raise ValueError('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07\\u202e\\u2066turned\\0 \\x9b2J')",
            "crash",
            "ValueError: red ��turned�",
        ),
        ("raise ValueError('\\ud800 lone')", "crash", "ValueError: � lone"),
        ("raise ValueError('first\\nsecond')", "crash", "ValueError: first"),
        ("raise type('', (Exception,), {})()", "crash", "an exception without a name"),
        (
            "class E(Exception):\n    def __str__(self): raise KeyError(1)\nraise E()",
            "crash",
            "E: its text could not be made (KeyError)",
        ),
        (
            "class E(Exception):\n    def __str__(self): return 5\nraise E()",
            "crash",
            "E: its text could not be made (TypeError)",
        ),
        (
            "raise ExceptionGroup('many', [ValueError('x' * 9999)] * 999)",
            "crash",
            "ExceptionGroup: many (999 sub-exceptions)",
        ),
        (
            "code = compile('\\nraise ValueError(1)', '/a/prepare.py', 'exec')\n"
            "exec(code, {'__name__': 'contest_prepare_1'})",
            "problem-error",
            "the problem raised this, not the kernel: prepare.py line 2: ValueError: 1",
        ),
    ],
)
def test_texts_of_exceptions_are_cleaned(tmp_path: Path, code: str, kind: str, message: str) -> None:
    cleaned = failure(tmp_path, code)
    assert (cleaned.kind, cleaned.message) == (kind, message)


def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    cleaned = failure(tmp_path, "raise ValueError('secret ' * 1000000)")
    assert "characters left out" in cleaned.message
    cleaned = failure(tmp_path, "raise ValueError('\\n'.join(f'line {n}' for n in range(100000)))")
    assert "lines left out" in cleaned.detail
    assert cleaned.detail.endswith("line 99999")
    cleaned = failure(tmp_path, "print('flood' * 10000, flush=True)\nimport os; os._exit(1)")
    assert "characters left out" in cleaned.detail


def test_a_notice_of_its_own_cannot_be_larger_than_a_reply(tmp_path: Path) -> None:
    cleaned = failure(tmp_path, f"{ANSWER}answer(b'!' + b'x' * (2 << 20))")
    assert cleaned.kind == "crash"
    assert "to answer with at most 1,048,576 bytes, got 2,097,185; it was ended" in cleaned.message


@pytest.mark.parametrize(
    "body",
    [
        b'={"path": "\xed\xa0\x80"}',
        b'={"path": 5}',
        b'={"path": "x"',
        b"=" + b"[" * 100000,
        b"=",
        b"",
        b"?{}",
        b'!{"stage": "nowhere", "kind": "x", "message": "x"}',
        b'!{"stage": "static", "kind": "x"}',
        b'={"path": ' + b"9" * 10000 + b"}",
    ],
)
def test_an_answer_that_is_none_is_a_crash_of_the_child(tmp_path: Path, body: bytes) -> None:
    cleaned = failure(tmp_path, f"{ANSWER}answer({body!r})")
    assert cleaned.kind == "crash"
    assert "got other data" in cleaned.message


def test_an_answer_of_its_own_is_cleaned_too(tmp_path: Path) -> None:
    answer = {"stage": "static", "kind": "k" * 999, "message": "\x1b[2J" + "m" * 9999, "detail": "d\n" * 9999}
    cleaned = failure(tmp_path, f"{ANSWER}answer(b'!' + {json.dumps(answer).encode()!r})")
    assert cleaned.stage == "static"
    assert cleaned.message.startswith("mmm")


def trace_reply(**claims: Any) -> TraceReply:
    defaults: dict[str, Any] = {"kernel_name": "name", "problem_description": "what", "flops": 1, "tiling": None}
    trace = Trace(fingerprint="f" * 64, pallas_calls=(), pallas_flops=1, outside_flops=0, seconds=0.5)
    return TraceReply(trace=trace, claims=Claims(**{**defaults, **claims}), warnings=(), operations=1)


def test_claims_are_cut_and_cleaned() -> None:
    reply = trace_reply(kernel_name="\x1b[1mfast\n" * 100, problem_description="\u202e" + "d" * 9999)
    cleaned = replies.clean(reply, ()).claims
    assert cleaned.kernel_name.startswith("fast fast")
    assert len(cleaned.kernel_name) <= 120
    assert len(cleaned.problem_description) <= 400
    assert is_harmless(cleaned.kernel_name + cleaned.problem_description)


def test_honest_replies_pass_unchanged() -> None:
    reply = trace_reply(kernel_name="flash attention, 2 × 128 rows", problem_description="softmax(QKᵀ)V")
    assert replies.clean(reply, (Path("/srv"),)) == reply


def test_numbers_that_no_report_could_print_are_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        replies.clean(trace_reply(flops=10**5000), ())


def test_warnings_are_counted_and_their_paths_shortened() -> None:
    sentences = tuple(f"/srv/me/kernel.py line {n}" for n in range(1000))
    warned = replace(trace_reply(), warnings=sentences)
    cleaned = replies.clean(warned, (Path("/srv/me"),)).warnings
    assert cleaned[0] == "kernel.py line 0"
    assert cleaned[-1] == "960 more are left out"
    assert len(cleaned) == 41


def test_a_path_without_end_takes_no_time() -> None:
    reply = Failure(stage="static", kind="x", message="/a" * 400000, detail="/b" * 400000)
    cleaned = replies.clean(reply, (Path("/srv"),))
    assert len(cleaned.message) <= strip_paths.MESSAGE_CHARACTERS
    assert len(cleaned.detail) <= strip_paths.DETAIL_CHARACTERS


def test_a_rejection_is_bounded_as_well(tmp_path: Path) -> None:
    code = "raise Rejected('static', 'race', 'm\\ud800' * 9999, 'd' * 99999)"
    assert failure(tmp_path, f"from harness.sandbox.messages import Rejected\n{code}").kind == "race"
