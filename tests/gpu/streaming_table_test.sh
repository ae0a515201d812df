#!/usr/bin/env bash
# streaming_table_test SCRIPT BENCHMARK: rows are measured once, failures are kept and told, another
# call goes on where the last one ended. Small shapes, on processors.
set -euo pipefail

script=$1
results=$TEST_TMPDIR/results
export BENCHMARK=$2 ROWS=$TEST_TMPDIR/rows STEPS=2
small="--shape tiny --tokens 64 --sequence-length 16 --micro-batch-tokens 32 --threads 1"
cat > "$ROWS" << ROWS_END
plain 0 1 $small
broken 0 1 $small --without nonsense
slabs 0 1 $small --pin slabs
long 1000 1 $small --order layer_major
ROWS_END

fail() { echo "FAILED: $1"; cat "$TEST_TMPDIR"/log*; exit 1; }

"$script" "$results" > "$TEST_TMPDIR/log1" 2>&1 && fail "a broken row is no success"
grep -q '^1 failed, 1 wait for another call$' "$TEST_TMPDIR/log1" || fail "totals"
[ "$(wc -l < "$results/streaming.jsonl")" = 2 ] || fail "two lines"
grep -q '^{"row": "slabs".*"pin": "slabs"' "$results/streaming.jsonl" || fail "a line has its row"
grep -q '^| plain | ' "$results/streaming.md" || fail "the table has the row"
grep -q '^- broken failed: status' "$results/streaming.md" || fail "the table tells the failure"
grep -q '^- long: not measured yet$' "$results/streaming.md" || fail "the table tells what is left"

# Only what is left; a step of it is one second by the list.
before=$(cat "$results/rows/plain.jsonl")
"$script" "$results" > "$TEST_TMPDIR/log2" 2>&1 || fail "nothing new fails"
grep -q '^== long' "$TEST_TMPDIR/log2" || fail "the row that waited runs"
grep -q '^== plain\|^== broken' "$TEST_TMPDIR/log2" && fail "a row runs once"
[ "$before" = "$(cat "$results/rows/plain.jsonl")" ] || fail "a line stays"
[ "$(wc -l < "$results/streaming.jsonl")" = 3 ] || fail "three lines"

# A row that failed runs again when it is named.
"$script" "$results" broken plain > "$TEST_TMPDIR/log3" 2>&1 && fail "still broken"
grep -q '^== broken' "$TEST_TMPDIR/log3" || fail "the named row runs"
grep -q '^== plain' "$TEST_TMPDIR/log3" && fail "what is done is done"
"$script" "$results" nosuchrow > "$TEST_TMPDIR/log4" 2>&1 && fail "an unknown row"
[[ $("$script" --list) == "plain: 4 s"* ]] || fail "the list"

# A row that would take longer than a call does fewer steps than it should.
rm "$results"/rows/plain.*
STEPS=1000000 BUDGET=42 "$script" "$results" plain > "$TEST_TMPDIR/log5" 2>&1 || fail "a short call"
grep -q '^{"row": "plain"' "$results/streaming.jsonl" || fail "a row of a short call has its line"

