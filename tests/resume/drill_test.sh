#!/usr/bin/env bash
# The drill itself, with a tiny model on processors.
set -euo pipefail
for dtype in fp32 bf16; do
  "$1" --folder "$TEST_TMPDIR/$dtype" --shape tiny --steps 5 --every 2 --kill-after 3 --rows 2 \
    --tokens 16 --dtype "$dtype"
done
