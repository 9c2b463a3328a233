#!/usr/bin/env bash
# Speed of data on this machine: MB a minute of `triax data build`, opening a dataset of 10 billion tokens, and how long
# training steps wait for their data.
#   scripts/data_speed.sh [-m megabytes of text] [-j workers] [-n steps] [triax]
# The text is the demo's novel again and again; SentencePiece takes an eighth of it. Folders: TMPDIR, about 6 times the
# text. The large dataset is a sparse file. Needs python3, which writes its index.
set -euo pipefail
megabytes=256 workers=$(nproc) steps=20
while getopts m:j:n: option; do
  case $option in
    m) megabytes=$OPTARG ;;
    j) workers=$OPTARG ;;
    n) steps=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
triax=$(realpath "${1:-build/cpu/bin/triax}")
[ -x "$triax" ] || { echo "data_speed.sh: no program at $triax; give its path first" >&2; exit 2; }
novel=$(realpath "$(dirname "$0")/../data/demo/pride_and_prejudice.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

repeated() {  # megabytes
  local size=0
  while [ $size -lt $(($1 * 1000000)) ]; do
    cat "$novel"
    size=$((size + $(stat -c %s "$novel")))
  done
}
build() {  # name, text, options
  local name=$1 text=$2
  shift 2
  "$triax" data build --input "$text" --document-separator '\n\n\n' --append-eod --workers "$workers" "$@" \
    --output-prefix "$name" >log 2>&1 || { cat log; exit 1; }
  awk -v n="$name" -v bytes="$(stat -c %s "$text")" '/^seconds/ {printf "build %-12s %8.1f MB in %6.2f s: %6.0f MB/min\n",
    n, bytes / 1e6, $2, bytes / 1e6 / $2 * 60}' log
}
repeated "$megabytes" >text
repeated $(((megabytes + 7) / 8)) >part
build bytes text --tokenizer-type ByteLevelTokenizer
for kind in bpe unigram; do
  "$triax" data train-tokenizer --input "$novel" --tokenizer-type SentencePieceTokenizer --model-type $kind \
    --vocab-size 6000 --output-prefix $kind >log 2>&1 || { cat log; exit 1; }
  build sp-$kind part --tokenizer-type SentencePieceTokenizer --tokenizer-model $kind.model
done

# 5 million documents of 2000 tokens of two bytes.
python3 - <<'PYTHON'
import array, struct
documents, length = 5_000_000, 2000
with open("large.idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
    (array.array("i", [length]) * documents).tofile(f)
    array.array("q", range(0, 2 * length * documents, 2 * length)).tofile(f)
    array.array("q", range(documents + 1)).tofile(f)
PYTHON
truncate -s 20000000000 large.bin
least_ms() {  # least of five runs of a command
  for _ in 1 2 3 4 5; do
    local begin=$EPOCHREALTIME
    "$@" >/dev/null
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {print 1e3 * (b - a)}'
  done | sort -g | head -1
}
start=$(least_ms "$triax" --version)
shown=$(least_ms "$triax" data show large --tokens 1)
awk -v a="$start" -v b="$shown" 'BEGIN {
  printf "opening 10 billion tokens: %.1f ms, a start of the program alone %.1f ms\n", b, a}'

train() {  # dataset, iterations, options
  local data=$1 iterations=$2
  shift 2
  "$triax" train "$@" --data-path "$data" --train-iters "$iterations" --lr 1e-4 --eval-iters 0 --threads "$workers" \
    --seed 1 --run-dir run-"$data" >log 2>&1 || { cat log; exit 1; }
}
train bytes_text_document "$steps" --model llama-10m --micro-batch-size 8 --global-batch-size 8
awk -v RS=, -F: '/"step_ms"/ {step[++n] = $2} /"data_wait_ms"/ {wait[n] = $2; if (n > 1) {sum += $2; all += step[n]}
  if (n > 1 && $2 > most) most = $2}
  END {printf "llama-10m, steps 2 to %d: %.1f ms each, waiting for data %.4f ms each, %.4f ms at most\n",
    n, all / (n - 1), sum / (n - 1), most}' run-bytes_text_document/metrics.jsonl
