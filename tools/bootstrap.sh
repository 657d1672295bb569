#!/bin/sh
# Make the virtual environment, or bring it up to date.
#
#   tools/bootstrap.sh core    the package alone: what a user installs
#   tools/bootstrap.sh dev     the package and everything its tests and checks need
#
# Owns the folder $OUTLIVE_VENV (default .venv) and never installs into any other Python. Works with
# pip and venv alone and uses uv where it is on PATH. OUTLIVE_PYTHON names the interpreter to use.
# On the bad day it leaves no half-made environment behind: what it began, it removes.

set -eu
cd "$(dirname "$0")/.."

profile=${1:-core}
venv=${OUTLIVE_VENV:-.venv}
stamp=$venv/.outlive-stamp
log=

# No tool that is started here may ask a question, and a user's pip settings must not move the
# install out of the environment.
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 DEBIAN_FRONTEND=noninteractive

case $profile in
core) target=. ;;
dev) target=".[dev]" ;;
*)
    echo "usage: tools/bootstrap.sh core|dev" >&2
    exit 2
    ;;
esac

die() {
    echo "outlive: $1" >&2
    exit 1
}

clean_log() {
    if [ -n "$log" ]; then rm -f "$log"; fi
}
trap clean_log EXIT

# An interpreter is judged by running it: a pyenv shim is on PATH even when it can start nothing.
is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${OUTLIVE_PYTHON:-}" ]; then
        echo "$OUTLIVE_PYTHON"
        return
    fi
    saved_ifs=$IFS
    IFS=:
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        for folder in $PATH; do
            if [ -x "$folder/$name" ] && is_recent "$folder/$name"; then
                IFS=$saved_ifs
                echo "$folder/$name"
                return
            fi
        done
    done
    IFS=$saved_ifs
    return 1
}

has_uv() {
    uv --version >/dev/null 2>&1
}

fingerprint() {
    # The folder is part of it, because the package is installed in place.
    echo "$1 $(cksum <pyproject.toml) $(pwd)"
}

is_current() {
    [ -f "$stamp" ] && "$venv/bin/python" -c "" 2>/dev/null || return 1
    found=$(cat "$stamp")
    [ "$found" = "$(fingerprint dev)" ] || [ "$found" = "$(fingerprint "$profile")" ]
}

# A folder that is neither empty nor a virtual environment is somebody's work: never remove it.
clear_venv() {
    if [ -f "$venv/pyvenv.cfg" ] || [ ! -e "$venv" ] || rmdir "$venv" 2>/dev/null; then
        rm -rf "$venv"
    else
        die "$venv exists and is not a virtual environment; move it away or set OUTLIVE_VENV."
    fi
}

attempt() {
    "$@" >>"$log" 2>&1 </dev/null
}

# Debian's venv writes pyvenv.cfg first and only then finds that ensurepip is missing.
try_venv() {
    clear_venv
    attempt "$python" -m venv "$venv" && attempt "$venv/bin/python" -m pip --version && return
    clear_venv
    return 1
}

try_uv_venv() {
    has_uv || return 1
    clear_venv
    attempt uv venv --quiet --seed --python "${python:-3.11}" "$venv" && return
    clear_venv
    return 1
}

try_apt_venv() {
    if [ -z "$python" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "outlive: installing python3-venv with apt-get" >&2
    attempt apt-get update || true
    attempt apt-get install -y --no-install-recommends "python$version-venv" ||
        attempt apt-get install -y --no-install-recommends python3-venv || return 1
    try_venv
}

make_venv() {
    if [ -n "${OUTLIVE_PYTHON:-}" ] && ! is_recent "$OUTLIVE_PYTHON"; then
        die "$OUTLIVE_PYTHON is not Python 3.11 or newer."
    fi
    log=$(mktemp)
    trap 'clear_venv; exit 130' INT TERM
    python=$(find_python) || python=
    if [ -n "$python" ]; then
        try_venv || try_uv_venv || try_apt_venv ||
            die "cannot make a virtual environment; install python3-venv (or uv) and run this again."
    else
        try_uv_venv || die "needs Python 3.11 or newer; install python3 and python3-venv (or uv)."
    fi
    trap - INT TERM
}

install() {
    echo "outlive: installing $target into $venv" >&2
    # uv does not read pip's configuration, so that a machine with its own package index may work
    # with pip alone.
    if has_uv && uv pip install --quiet --python "$venv/bin/python" -e "$target" 2>/dev/null; then
        return
    fi
    "$venv/bin/python" -m pip install --quiet -e "$target" </dev/null
}

if is_current; then exit 0; fi
if ! is_recent "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    make_venv
fi
# An install for a demo must not take the tools of a developer away from the stamp.
if [ -f "$stamp" ] && grep -q "^dev " "$stamp"; then
    profile=dev
    target=".[dev]"
fi
rm -f "$stamp"
install || die "the packages could not be installed; see the lines above."
fingerprint "$profile" >"$stamp"
