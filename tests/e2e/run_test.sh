#!/usr/bin/env bash
# run_test.sh FOLDER MODULE [FLAG...]: the unit tests of a Python module beside the harness.
set -euo pipefail
export PYTHONPATH=$PWD/$1:$PWD/tests/e2e:$MEGATRAIN_DEPS PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$1/$2.py" -v "${@:3}"
