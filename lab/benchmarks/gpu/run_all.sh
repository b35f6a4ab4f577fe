#!/usr/bin/env bash
# What one GPU does with our trainers and with plain Hugging Face generation and TRL beside them, as one Markdown table.
#
#   lab/benchmarks/gpu/run_all.sh                        on a GPU host: about half an hour, tables on the output
#   lab/benchmarks/gpu/run_all.sh --device cpu           do the parts work? tiny models, no figure of it means anything
#
# PYTHON (default .venv/bin/python) runs the local backend, plain training and TRL (a part says so where trl is missing);
# TRAINER (default .venv-verl/bin/python) runs verl with vLLM, where it is there.
set -uo pipefail
cd "$(dirname "$0")/../.."
device=cuda
[ "${1:-}" = --device ] && device=${2:?--device needs cuda or cpu}
python=${PYTHON:-.venv/bin/python} trainer=${TRAINER:-.venv-verl/bin/python}
if [ "$device" = cuda ] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
  echo "error: torch of $python sees no GPU on this machine; run this on a GPU host, or with --device cpu to see that the parts work." >&2
  exit 1
fi
failed=0
part() { # TITLE COMMAND...: its rows below its title; a part that fails ends no other
  echo; echo "### $1"; echo; echo "\`${*:2}\`"; echo; echo '| what | value |'; echo '| --- | --- |'
  "${@:2}" || { echo "| failed | exit status $? |"; failed=1; }
}
[ "$device" = cuda ] && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if [ "$device" = cpu ]; then
  small=(--device cpu --size tiny)
  part "Local backend, tiny" "$python" lab/benchmarks/gpu/local_backend.py "${small[@]}" --vocab 2000 --episodes 8 --turns 2 --reply 16
  part "Hugging Face generate and a plain update, tiny" "$python" lab/benchmarks/gpu/plain_trainer.py "${small[@]}"
  part "TRL, tiny" "$python" lab/benchmarks/gpu/trl_grpo.py "${small[@]}"
else
  part "Local backend, 0.6 B, bfloat16" "$python" lab/benchmarks/gpu/local_backend.py
  part "Local backend, 1.7 B, bfloat16" "$python" lab/benchmarks/gpu/local_backend.py --size 1.7b
  part "Local backend, 0.6 B, float32" "$python" lab/benchmarks/gpu/local_backend.py --dtype float32
  part "Hugging Face generate and a plain update, 0.6 B" "$python" lab/benchmarks/gpu/plain_trainer.py
  part "Hugging Face generate and a plain update, 1.7 B" "$python" lab/benchmarks/gpu/plain_trainer.py --size 1.7b
  part "TRL, 0.6 B" "$python" lab/benchmarks/gpu/trl_grpo.py
  if [ -x "$trainer" ]; then
    part "verl and vLLM, 0.6 B, four steps" "$python" lab/benchmarks/gpu/verl_stage.py --python "$trainer"
  else
    echo; echo "verl: $trainer is not there (docs/gpu.md), so this part was left out."
  fi
fi
exit $failed
