#!/usr/bin/env bash
# Sets up the environment on first use, then hands all other arguments to the harness.
#
#   ./ratchet.sh [--python 3.12|/path/to/python] ARGUMENTS...
#
# The environment is .venv beside this file, made from requirements.lock (exact versions and hashes)
# by uv: the one on PATH, else one installed into .venv. It is made again when the lock changes or
# another Python is asked for. After that, only two downloads remain, each on first use: `test` and `validate` add the
# packages of requirements-dev.lock, `tune` and `table` those of requirements-tune.lock.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
# `ci --compilers both` sets this variable: it has a second environment, in the user's cache.
venv=${RATCHET_ENVIRONMENT:-$here/.venv}
stamp=$venv/.ratchet-stamp

say() { printf '%s\n' "$*" >&2; }

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

wanted=
if [[ ${1-} == --python ]]; then
    [[ $# -ge 2 ]] || { say "ratchet: --python needs a version (3.12) or the path of an interpreter"; exit 2; }
    wanted=$2
    shift 2
fi

find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11)
    if [[ $wanted == */* ]]; then
        candidates=("$wanted")
    elif [[ -n $wanted ]]; then
        candidates=("$wanted" "python$wanted" "$HOME"/.pyenv/versions/"$wanted".*/bin/python)
    fi
    for candidate in "${candidates[@]}"; do
        if supported "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    say "ratchet: expected Python 3.11 to 3.13, found none among: ${candidates[*]}"
    say "         install one, or name its path: $0 --python /path/to/python3.12 ..."
    return 1
}

lock=$(cksum <"$here/requirements.lock")
# Further packages that a verb needs: the name of their lock, and words for the message.
verb=${1-} extra=
[[ $verb == -C ]] && verb=${3-}
case $verb in
    test | validate) extra=dev what="the packages of the tests" ;;
    tune | table) extra=tune what="Optuna and Ray, for the search" ;;
esac
# --help needs no further packages.
case " $* " in *" -h "* | *" --help "*) extra= ;; esac

ready() {
    [[ -f $stamp && -x $venv/bin/python ]] && [[ $(sed -n 1p "$stamp") == "$lock" ]] &&
        { [[ -z $wanted ]] || [[ $(sed -n 2p "$stamp") == "$wanted" ]]; }
}

has_extra() {
    [[ -z $extra ]] || [[ -f $venv/.ratchet-$extra && $(<"$venv/.ratchet-$extra") == "$(cksum <"$here/requirements-$extra.lock")" ]]
}

room() { df -h --output=avail "$(dirname "$venv")" 2>/dev/null | tail -n 1 | tr -d ' ' || printf 'unknown'; }

no_packages() {
    say "ratchet: $1, see above: this needs a network (behind a proxy, set HTTPS_PROXY)"
    say "         and 1.7 GB at $venv (free: $(room)). Run again to retry"
    exit 4
}

install() {
    local uv
    uv=$(command -v uv || printf '%s' "$venv/bin/uv")
    "$uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes --requirement "$here/$1" ||
        no_packages "could not install the packages of $1"
}

add_extra() {
    cd "$here"
    say "ratchet: adding $what"
    install "requirements-$extra.lock"
    cksum <"$here/requirements-$extra.lock" >"$venv/.ratchet-$extra"
}

# The project itself runs from this folder: one .pth file instead of a build. Its path is relative, so that a copy of
# the folder runs its own harness.
link() {
    local packages=("$venv"/lib/python3.*/site-packages) root=$here
    [[ $venv == "$here/.venv" ]] && root=../../../..
    [[ -d ${packages[0]} ]] || return 0
    [[ -f ${packages[0]}/kernel_ratchet.pth && $(<"${packages[0]}/kernel_ratchet.pth") == "$root" ]] ||
        printf '%s\n' "$root" >"${packages[0]}/kernel_ratchet.pth"
}

set_up() {
    local python uv
    python=$(find_python) || exit 4
    # uv and pip read settings, and Python modules, of the folder that they are started in: it may be a stranger's.
    cd "$here"
    say "ratchet: setting up $venv with $("$python" -V)"
    if [[ $(uname -sm) == "Linux x86_64" ]]; then
        say "ratchet: downloads about 500 MB once (libtpu, the TPU compiler: 640 MB installed; 1.7 GB in all)"
    else
        say "ratchet: libtpu, the TPU compiler, exists for x86-64 Linux only: on $(uname -sm) nothing can be compiled or simulated"
    fi
    if [[ -e $venv && $venv != "$here/.venv" && ! -f $stamp ]]; then
        say "ratchet: RATCHET_ENVIRONMENT names $venv, which exists and is no environment of the ratchet: name another"
        exit 2
    fi
    rm -rf "$venv"
    uv=$(command -v uv || true)
    if [[ -n $uv ]]; then
        "$uv" venv --quiet --seed --python "$python" "$venv" || no_packages "uv could not make $venv"
    else
        "$python" -m venv "$venv" ||
            { say "ratchet: $python cannot make virtual environments (on Debian: apt install python3-venv)"; exit 4; }
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv ||
            no_packages "could not install uv"
    fi
    install requirements.lock
    link
    printf '%s\n%s\n' "$lock" "$wanted" >"$stamp"
    say "ratchet: ready"
}

# A shell that completes a line waits for the answer; it is not the time to install anything.
if [[ -n ${_ARGCOMPLETE-} ]]; then
    ready || exit 0
    extra=
fi

if ready; then link; fi
if ! ready || ! has_extra; then
    (
        exec 9>"$here/.venv.lock"
        if command -v flock >/dev/null; then flock 9; fi
        ready || set_up
        has_extra || add_extra
    )
fi

# -P: imports nothing from the folder that this is called in, which may be a stranger's contest.
# -X: how this was called, for the commands that are printed (harness/shell/program_name.py).
exec "$venv/bin/python" -P -X "ratchet=$0" -m harness "$@"
