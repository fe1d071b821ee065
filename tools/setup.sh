#!/bin/sh
# Makes .venv from the hashed lock with nothing but `python3 -m venv` and pip.
#
# Does nothing when the environment is ready for this interpreter, folder and lock. An interrupted
# run leaves no stamp, so the next one starts over; a second run in the same folder waits its turn.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.ready

# Line 1: interpreter and folder, for which the environment was made. Line 2: what it holds.
place="$("$python" -c 'import sys; print(*sys.version.split(), sys.base_prefix)') $PWD"
content=$(cat requirements.lock pyproject.toml | cksum)
stamped() { [ "$(cat "$stamp" 2>/dev/null)" = "$place
$content" ]; }

stamped && exit 0
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Mitosis needs Python 3.11 or newer; $python is $("$python" -V 2>&1). Set PYTHON=…" >&2
    exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || {
    echo "$python has no venv module: install it first (Debian: apt install python3-venv)" >&2
    exit 1
}

exec 9>.venv.lock
if command -v flock >/dev/null; then flock 9; fi
stamped && exit 0

# The same interpreter in the same folder: bring it up to date. Anything else: start over.
if [ "$(head -n 1 "$stamp" 2>/dev/null)" = "$place" ]; then
    rm -f "$stamp"
else
    "$python" -m venv --clear "$venv"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
"$venv/bin/python" -m pip install -qq --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install -qq --no-deps --no-build-isolation -e .
printf '%s\n%s\n' "$place" "$content" >"$stamp.new"
mv "$stamp.new" "$stamp"
