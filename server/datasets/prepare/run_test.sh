#!/usr/bin/env bash
# run_test.sh MODULE: a unittest module of this package, with the pinned wheels.
set -euo pipefail
[ -z "${SMOLLM2_UNPACK:-}" ] || SMOLLM2_UNPACK=$(realpath "$SMOLLM2_UNPACK")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD:$MEGATRAIN_DEPS PYTHONDONTWRITEBYTECODE=1 TOKENIZERS_PARALLELISM=false
exec /usr/bin/python3 -m unittest -v "prepare.$1"
