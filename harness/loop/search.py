"""The settings to screen, one after the other: a whole grid, or the settings that a search by Optuna asks for."""

import hashlib
import importlib.util
import itertools
import random
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from harness import files
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.key import key_digest
from harness.loop.ledger_advice import set_constants
from harness.loop.search_space import MOST_LISTED, Grid, Setting, every, size
from harness.units import seconds as in_seconds

if TYPE_CHECKING:
    import optuna

Settings = tuple[Setting, ...]
Method = Literal["tpe", "random"]
# How many of the fastest settings of an earlier run are screened again, so that they can be judged.
_FASTEST = 3
# The number of settings that are drawn at random at first, and the number of candidates from which each later setting
# is chosen. Only few are drawn at random, because a search tries only dozens of the hundreds of settings of a space.
_AT_RANDOM, _WEIGHED = 6, 96
# The exceptions that Optuna raises for a journal with lines that it did not write.
_DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# How often in a row Optuna may propose known settings before new settings are drawn at random instead.
_REPEATS = 20


def study_name(contest: Contest, grid: Grid) -> str:
    """A name for the study of this kernel.py, space, judge, problem, chip and compiler.

    The values that the constants of the grid have in kernel.py do not count.

    On a device each study has a new name, because times of different hours are not comparable. Raises RatchetError
    `unknown-constant` if kernel.py lacks one of the constants.
    """
    settings = tuple((name, values[0]) for name, values in grid)
    candidate = set_constants(contest.candidate(), settings, contest.directory)
    key = key_digest(contest.key("simulated"))
    once = "" if contest.chip.platform == "tpu" else str(time.time_ns())
    parts = (candidate.text, key.encode(), repr(grid).encode(), once.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def as_it_stands(candidate: Candidate, grid: Grid) -> Settings | None:
    """The grid's constants with their values in kernel.py; None if the grid lacks one of these values."""
    value_of = dict(candidate.constants)
    settings = tuple((name, value_of.get(name, "")) for name, _ in grid)
    return settings if all(value in values for (_, value), (_, values) in zip(settings, grid, strict=True)) else None


class WholeGrid:
    """Every setting, or every one that is `allowed`, in the order of the grid."""

    earlier: Mapping[Settings, float] = MappingProxyType({})

    def __init__(self, grid: Grid, allowed: frozenset[Settings] | None = None) -> None:
        self.total = size(grid) if allowed is None else len(allowed)
        self._left = (settings for settings in every(grid) if allowed is None or settings in allowed)

    def ask(self) -> Settings | None:
        """The next settings to screen, or None at the end."""
        return next(self._left, None)

    def tell(self, settings: Settings, seconds: float | None) -> None:
        """Does nothing: the result does not change which settings come next."""

    def forget(self, settings: Settings) -> None:
        """Does nothing, because results are not kept here."""


class Study:
    """A search by Optuna: at most `trials` settings, asked for until `deadline` (time.monotonic()).

    - `in_all`: if True, the settings of the search that this search continues count towards `trials`.
    - Settings that are not `allowed` are never asked for.
    - Results go into a journal at `path`. A study of the same `name` is continued: settings with a known result are not
      asked for again, except the fastest ones, which come first, so that one of them can be judged. Then come the
      members of `first` without a known result.

    Raises RatchetError `no-optuna` if Optuna is not installed, `bad-journal` if the file cannot be read. Like `ask`,
    `tell` and `forget`, raises the errors of files.refusals_in_words if the journal cannot be written.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        method: Method,
        trials: int,
        deadline: float,
        seed: int,
        path: Path,
        name: str,
        first: Sequence[Settings] = (),
        in_all: bool = False,
        allowed: frozenset[Settings] | None = None,
    ) -> None:
        self._grid = grid
        self._allowed = allowed
        self._in_all = in_all
        self._deadline = deadline
        self._random = random.Random(seed)
        self._path = path
        with _words_of_journal(path):
            self._study = _study(method, seed, path, name)
            self._seconds_of = {
                self._settings(trial.params): _seconds(trial.value)
                for trial in self._study.get_trials(deepcopy=False)
                if trial.value is not None
            }
        self._distributions = {name: _distribution(values) for name, values in grid}
        self._asked: dict[Settings, optuna.Trial] = {}
        self._forgotten: set[Settings] = set()
        self._left = max(0, trials - len(self._seconds_of)) if in_all else trials
        self.earlier: Mapping[Settings, float] = {
            settings: seconds for settings, seconds in self._seconds_of.items() if seconds < inf
        }
        fit = [settings for settings in self.earlier if self._is_allowed(settings)]
        self._first = sorted(fit, key=lambda settings: (self.earlier[settings], settings))[:_FASTEST]
        # With `in_all`, settings that are asked for again are not counted twice.
        again = len(self._first) if in_all else 0
        self.total = min(size(grid) if allowed is None else len(allowed), self._left + again)
        new = [each for each in dict.fromkeys(first) if each not in self._seconds_of and self._is_allowed(each)]
        self._first += new[: self._left]

    def ask(self) -> Settings | None:
        """The next settings to screen, or None at the end."""
        if self._first:
            return self._drawn(self._first.pop(0))
        if self._left <= 0 or time.monotonic() > self._deadline:
            return None
        for _ in range(_REPEATS):
            with self._writing():
                trial = self._study.ask(self._distributions)
            settings = self._settings(trial.params)
            if self._is_new(settings):
                return self._begun(settings, trial)
            # Optuna gets the known result once more; settings that are being screened have none yet.
            self._end(trial, self._seconds_of.get(settings))
        left = self._not_tried()
        return None if left is None else self._drawn(left)

    def _drawn(self, settings: Settings) -> Settings:
        """Begins a trial of `settings` in the study, and returns them."""
        places = {name: values.index(value) for (name, values), (_, value) in zip(self._grid, settings, strict=True)}
        with self._writing():
            self._study.enqueue_trial(places)
            trial = self._study.ask(self._distributions)
        return self._begun(settings, trial)

    def is_asked(self, settings: Settings) -> bool:
        """True if the study asked for these settings and has no result of them yet."""
        return settings in self._asked

    def tell(self, settings: Settings, seconds: float | None) -> None:
        """Receives the latency of `settings`, None if they have none."""
        self._seconds_of[settings] = inf if seconds is None else seconds
        self._end(self._asked.pop(settings), self._seconds_of[settings])

    def forget(self, settings: Settings) -> None:
        """Drops the result of `settings`: the machine may have caused it."""
        self._forgotten.add(settings)
        # The journal records a failed trial, whose settings a continued search may ask for again.
        self._end(self._asked.pop(settings), None)

    def _begun(self, settings: Settings, trial: "optuna.Trial") -> Settings:
        self._asked[settings] = trial
        # With `in_all`, known settings that are asked for again are not counted a second time.
        self._left -= not (self._in_all and settings in self._seconds_of)
        return settings

    def _end(self, trial: "optuna.Trial", value: float | None) -> None:
        from optuna.trial import TrialState

        with self._writing():
            self._study.tell(trial, value, state=TrialState.FAIL if value is None else None)

    def _writing(self) -> AbstractContextManager[None]:
        return _words_of_journal(self._path)

    def _settings(self, places: dict[str, int]) -> Settings:
        return tuple((name, values[places[name]]) for name, values in self._grid)

    def _is_new(self, settings: Settings) -> bool:
        is_taken = settings in self._seconds_of or settings in self._asked or settings in self._forgotten
        return not is_taken and self._is_allowed(settings)

    def _is_allowed(self, settings: Settings) -> bool:
        return self._allowed is None or settings in self._allowed

    def _not_tried(self) -> Settings | None:
        """Any setting that was not asked for; None if there is none, or the space is too large to list."""
        if size(self._grid) > MOST_LISTED:
            return None
        left = [settings for settings in every(self._grid) if self._is_new(settings)]
        return self._random.choice(left) if left else None


# A search gives at most `total` settings and receives their results; it serves one caller at a time. If it continues
# another search, `earlier` has that search's settings with a latency, in the order in which it asked for them.
Search = WholeGrid | Study


class SearchProgress:
    """The progress of a search of `total` settings, in words."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._best, self._began = total, 0, inf, time.monotonic()

    def after(self, seconds: float | None, why: str) -> str:
        """The result of one more setting (`why` it has no latency), the best so far, and the estimated time left."""
        self._done += 1
        latency = why if seconds is None else in_seconds(seconds)
        best = f"best so far {in_seconds(self._best)}, " if self._best < inf else ""
        if seconds is not None and seconds < self._best:
            self._best, best = seconds, "best so far, "
        left = max(0, self._total - self._done) * (time.monotonic() - self._began) / self._done
        # Settings tried in addition to the search come last.
        done = f"{self._done} of {max(self._total, self._done)}"
        return f"{latency}, {best}{done}" + (f", {in_seconds(left, 0)} left" if left else "")


def _distribution(values: tuple[str, ...]) -> "optuna.distributions.BaseDistribution":
    """A distribution over indices of the values: ordered if they are rising numbers, else categorical."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    is_rising = all(value.lstrip("-").isdigit() for value in values) and len(values) > 1
    if is_rising and all(int(lower) < int(upper) for lower, upper in itertools.pairwise(values)):
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(tuple(range(len(values))))


def _study(method: Method, seed: int, path: Path, name: str) -> "optuna.Study":
    if importlib.util.find_spec("optuna") is None:
        raise RatchetError(
            "no-optuna",
            "expected Optuna, found none. In a clone, `./ratchet.sh tune` installs it; elsewhere, run "
            f"{shlex.quote(sys.executable)} -m pip install optuna",
        )
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    # An incomplete last line, left by a kill or a full disk, is removed: appended text would be lost in it.
    with suppress(FileNotFoundError), open(path, "r+b") as stream:
        stream.truncate(stream.read().rfind(b"\n") + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # With constant_liar, Optuna avoids settings close to those that are being screened.
        samplers: dict[Method, optuna.samplers.BaseSampler] = {
            "tpe": optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_AT_RANDOM, n_ei_candidates=_WEIGHED
            ),
            "random": optuna.samplers.RandomSampler(seed=seed),
        }
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.create_study(storage=storage, sampler=samplers[method], study_name=name, load_if_exists=True)


@contextmanager
def _words_of_journal(path: Path) -> Iterator[None]:
    """Turns Optuna's exceptions about the journal, which it reads in each step, into a RatchetError.

    Its kind is `bad-journal`, or a kind of files.refusals_in_words if the file cannot be written.
    """
    try:
        with files.refusals_in_words(f"writing {path}"):
            yield
    except _DAMAGE as error:
        message = f"{path} is not the journal of a search ({error!r}): remove it to begin anew; it holds no attempts"
        raise RatchetError("bad-journal", message) from error


def _seconds(value: float) -> float:
    """The latency in the journal, `inf` for none."""
    if not value > 0:
        raise ValueError(f"expected a time above 0, got {value}")
    return value
