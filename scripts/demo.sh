#!/usr/bin/env bash
# The demo: a novel becomes tokens, a small Llama is trained on 8 ranks (tensor 2 x pipeline 2 x data 2), and writes.
#   scripts/demo.sh path/to/triax [folder]       default folder: runs/demo, made anew
set -euo pipefail
cd "$(dirname "$0")/.."
triax=$1
out=${2:-runs/demo}
# check_gpu.sh: TRIAX_DEVICE=cuda TRIAX_DEMO_LAYOUT=one, on one rank and its GPU.
device=(--device "${TRIAX_DEVICE:-cpu}")
one=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --no-sequence-parallel)
ranks=8
[ "${TRIAX_DEMO_LAYOUT:-}" != one ] || { ranks=1; device+=("${one[@]}"); }
text=data/demo/pride_and_prejudice.txt
launch=${TRIAX_LAUNCHER:-mpiexec -n}
say() { printf '\n== %s\n' "$*"; }

# Only a folder of the demo's own is made anew.
if [ -n "$(ls -A "$out" 2>/dev/null)" ] && [ ! -e "$out/bpe-vocab.json" ]; then
  echo "demo: $out holds other files: name a folder that does not exist" >&2
  exit 2
fi
rm -rf "$out"
mkdir -p "$out"

say "A tokenizer of 2048 ids, and the novel as tokens"
"$triax" data train-tokenizer --input $text --vocab-size 2048 --output-prefix "$out/bpe"
"$triax" data build --input $text --document-separator '\n\n\n' --append-eod --tokenizer-type GPT2BPETokenizer \
  --vocab-file "$out/bpe-vocab.json" --merge-file "$out/bpe-merges.txt" --output-prefix "$out/novel"

[ $ranks -eq 1 ] && say "Training on one rank, ${device[1]}" || say "Training on 8 ranks: tensor 2 x pipeline 2 x data 2"
export OMP_NUM_THREADS=1
$launch $ranks "$triax" train --config configs/demo.cfg "${device[@]}" --data-path "$out/novel_text_document" --run-dir "$out/run" \
  --save "$out/weights"

say "Held-out chapters: the model against zlib -9"
# 90 % of 62 documents train: chapters 56 to 61 are held out (document 0 is the title).
for document in 56 57 58 59 60 61; do
  "$triax" data show "$out/novel_text_document" --document $document --decode
done >"$out/held_out.txt"
$launch 1 "$triax" train --config configs/demo.cfg --device "${device[1]}" "${one[@]}" --data-path "$out/novel_text_document" --load "$out/weights" --skip-train \
  --run-dir "$out/evaluation"
bytes=$(wc -c <"$out/held_out.txt")
gzip -9 -n -c "$out/held_out.txt" | wc -c | awk -v n="$bytes" \
  '{printf "zlib -9 on the same chapters: %.4f bits per byte (%d of %d bytes)\n", 8 * ($1 - 18) / n, $1 - 18, n}'

say "A sample"
"$triax" sample --load "$out/weights" --prompt "It is a truth universally acknowledged, that" --max-new-tokens 120 \
  --temperature 0.8 --top-k 40 --seed 1

say "Metrics: $out/run/metrics.jsonl, TensorBoard: $out/run/tensorboard, the run: $out/run/run.json"
