#!/usr/bin/env bash
# quickstart_parts.sh: what deploy/quickstart and tests/gpu/quickstart do alike; they source it.
#
# A daemon with a state folder of its own, and fine-tuning on additions through it and the CLI.
# Everything but exported folders is removed at the end, also after Ctrl-C.

# Whoever sources it sets these before a call.
work=        # folder for state and models, which exists
megatrain=() # the CLI, as words
python=/usr/bin/python3
steps=120    # of a fine-tuning

daemon=
state=

say() { echo "quickstart: $*"; }

leave() {
  trap - EXIT INT TERM
  if [ -n "$daemon" ]; then
    kill "$daemon" 2> /dev/null || true
    wait "$daemon" || true
  fi
  [ -z "$state" ] || rm -rf "$state"
}
trap leave EXIT
trap 'leave; exit 130' INT TERM

# start_daemon COMMAND...: with its flags, but where it listens and what it keeps.
start_daemon() {
  state=$(mktemp -d "$work/state.XXXXXX")
  "$@" --state-dir "$state" --listen 127.0.0.1:0 --allow-path "$work" > "$state/daemon.log" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    [ ! -s "$state/address" ] || break
    kill -0 "$daemon" 2> /dev/null || break
    sleep 0.1
  done
  if [ ! -s "$state/address" ]; then
    tail -n 20 "$state/daemon.log" >&2
    say "the daemon did not start"
    exit 1
  fi
  MEGATRAIN_ADDRESS=$(cat "$state/address")
  export MEGATRAIN_ADDRESS
}

# import_model FOLDER and upload_data FOLDER: what is to be tuned, and the rows for it.
import_model() { "${megatrain[@]}" model import "$1" --name smollm2-135m-instruct --wait; }
upload_data() { "${megatrain[@]}" dataset upload "$1/train.jsonl" --name addition; }

# job_file NAME DTYPE
job_file() {
  cat << END
model: models/smollm2-135m-instruct
dataset: datasets/addition
output: models/$1
display_name: addition
train:
  steps: $steps
  batch_rows: 8
  seed: 0
  compute_dtype: $2
  optimizer: {name: adamw, learning_rate: 1e-4, beta1: 0.9, beta2: 0.95}
  schedule: {name: linear, warmup_steps: 6}
  max_gradient_norm: 1.0
END
}

# tune NAME DTYPE: the result becomes models/NAME, and the job as the server tells it
# $state/NAME.json.
tune() {
  job_file "$1" "$2" > "$state/$1.yaml"
  "${megatrain[@]}" plan "$state/$1.yaml"
  "${megatrain[@]}" submit "$state/$1.yaml" --follow -o json > "$state/$1.json"
}

# export_model NAME FOLDER: in place of what is in the folder.
export_model() {
  rm -rf "$2"
  "${megatrain[@]}" model export "models/$1" "$2"
}

# memory_line NAME: of the job that made models/NAME.
memory_line() {
  "$python" - "$state/$1.json" << 'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    job = json.load(file)
peak, plan = (int(size) >> 20 for size in (job["peakHostBytes"], job["plan"]["hostBytes"]))
print(f"engine memory: peak {peak} MiB, plan {plan} MiB")
END
}
