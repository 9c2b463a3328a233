#!/usr/bin/env bash
# Hugging Face models through `triax ckpt`: hugging_face.sh TRIAX SOURCE. Import, training from it, export; what
# transformers and safetensors say of an export where Python has them (TRIAX_PYTHON, default python3).
. "$(dirname "$0")/expect.sh"
source=$2
fixtures=$source/tests/fixtures/huggingface
tokenizer=$source/tests/fixtures/tokenizer
ckpt() { "$triax" ckpt "$@"; }

for model in gpt2 llama; do
  expect 0 'tokenizer files: none' ckpt import "$fixtures/$model" $model
  expect 0 ' tensors' ckpt ls $model
  expect 0 '' ckpt verify $model
  expect 0 'weight of iteration 0' ckpt export $model $model.hub --format safetensors
  # Out and in again: the same bits.
  expect 0 '' ckpt import $model.hub $model.again
  expect 0 '' ckpt diff $model $model.again
  # bf16 -> fp32 -> bf16 loses nothing; fp32 -> bf16 does.
  expect 0 'as fp32' ckpt export $model $model.wide --format safetensors --dtype fp32 --max-shard-size 20KB
  expect 0 'as bf16' ckpt import $model.wide $model.narrow --dtype bf16
done
expect 0 '' ckpt diff llama llama.narrow
expect 4 '' ckpt diff gpt2 gpt2.narrow --atol 1e-9
[ -f llama.wide/model.safetensors.index.json ] || fault "--max-shard-size 20KB made one file of llama"

# Trained on from there, in another layout, and out again.
train() {
  "${MPIEXEC:-mpiexec}" -n 2 "$triax" train --load "$1" --finetune --use-checkpoint-args --seq-length 32 --mock-data \
    --micro-batch-size 1 --global-batch-size 4 --lr 1e-3 --train-iters 2 --eval-iters 0 --run-dir run.$1 "${@:2}"
}
expect 0 'iteration        2/       2' train gpt2 --tensor-model-parallel-size 2 --save gpt2.trained
expect 0 'iteration        2/       2' train llama --pipeline-model-parallel-size 2 --bf16 --save llama.trained
for model in gpt2 llama; do
  expect 0 'weight of iteration 2' ckpt export $model.trained $model.trained.hub --format safetensors
done
expect 0 'master of iteration 2 as fp32' ckpt export llama.trained llama.master.hub --format safetensors --kind master

# Tokenizer files go along, with the ids of begin and end in config.json.
cp -r "$fixtures/gpt2" with_tokenizer
cp "$tokenizer/vocab.json" "$tokenizer/merges.txt" with_tokenizer
sed -i 's/"vocab_size": 61/"vocab_size": 60/' with_tokenizer/config.json
expect 5 "tensor 'transformer.wte.weight' has the shape [61, 32], config.json wants [60, 32]" ckpt import with_tokenizer x1
cp "$fixtures/gpt2/config.json" with_tokenizer
expect 2 'ids, config.json vocab_size 61' ckpt import with_tokenizer x2
expect 0 'tokenizer files: none' ckpt import with_tokenizer x2 --no-tokenizer

# A model with a tokenizer: its files go out, its ids into config.json, and back in: the same tokenizer samples.
files=(--vocab-file "$tokenizer/vocab.json" --merge-file "$tokenizer/merges.txt")
printf 'It is a truth universally acknowledged, that a single man in possession of a good fortune\n%.0s' 1 2 3 4 5 6 7 8 >text
expect 0 '' "$triax" data build --input text --append-eod --tokenizer-type GPT2BPETokenizer "${files[@]}" --output-prefix d
expect 0 'iteration        1/       1' "${MPIEXEC:-mpiexec}" -n 1 "$triax" train --num-layers 2 --hidden-size 32 --num-attention-heads 4 \
  --seq-length 16 --max-position-embeddings 16 --data-path d_text_document --split 1,0,0 --eval-iters 0 --micro-batch-size 1 \
  --tokenizer-type GPT2BPETokenizer "${files[@]}" --lr 1e-3 --train-iters 1 --run-dir run.words --save words
expect 0 'tokenizer files: vocab.json, merges.txt' ckpt export words words.hub --format safetensors
cmp -s "$tokenizer/vocab.json" words.hub/vocab.json || fault "vocab.json is another file"
grep -qE '"eos_token_id": [0-9]+' words.hub/config.json || fault "config.json has no eos_token_id"
expect 0 'tokenizer files: vocab.json, merges.txt' ckpt import words.hub words.again
expect 0 '' ckpt diff words words.again --kind weight
expect 0 'It is' "${MPIEXEC:-mpiexec}" -n 1 "$triax" sample --load words.again --prompt 'It is' --max-new-tokens 2
expect 2 "the tokenizer's file 'gone.json' is not there" ckpt export words x8 --format safetensors --vocab-file gone.json
head -n 100 "$tokenizer/merges.txt" >few.txt
expect 2 'the checkpoint was trained with' ckpt export words x9 --format safetensors --merge-file few.txt

# What is not computed here is refused by its key.
refuse() {
  rm -rf refused
  cp -r "$fixtures/$1" refused
  sed -i "s/$2/$3/" refused/config.json
  expect 2 "$4" ckpt import refused refused.ckpt
  [ ! -e refused.ckpt/latest_checkpointed_iteration.txt ] || fault "a refused import left a checkpoint"
}
refuse llama '"rope_scaling": null' '"rope_scaling": {"type": "linear", "factor": 2.0}' 'rope_scaling = {"factor":2.0,"type":"linear"}'
refuse llama '"use_cache": true' '"sliding_window": 4096' 'sliding_window = 4096'
refuse llama '"use_cache": true' '"num_local_experts": 8' 'num_local_experts = 8'
refuse gpt2 'gelu_new' 'relu' 'activation_function = "relu"'
expect 2 'ckpt import: --format gguf: must be safetensors' ckpt import llama x3 --format gguf
expect 2 '--dtype int8: must be fp32, bf16 or fp16' ckpt export llama x4 --format safetensors --dtype int8
expect 2 '--max-shard-size big: must be a size such as 5GB' ckpt export llama x5 --format safetensors --max-shard-size big
expect 2 'already holds weights' ckpt export llama llama.hub --format safetensors
expect 2 'exists already; name another directory' ckpt import "$fixtures/llama" llama
expect 5 'config.json: cannot be read' ckpt import nowhere x6
head -c 9000 "$fixtures/llama/model-00003-of-00005.safetensors" >refused.part
rm -rf refused && cp -r "$fixtures/llama" refused && mv refused.part refused/model-00003-of-00005.safetensors
expect 5 'model-00003-of-00005.safetensors: not a valid safetensors file' ckpt import refused x7

# transformers computes from an export what it computed from the original.
python=${TRIAX_PYTHON:-python3}
for model in gpt2 llama; do
  for directory in $model.hub $model.wide; do
    output=$("$python" "$source/tests/fixtures/huggingface/check_export.py" $directory "$fixtures/$model/logits.json" 2>&1)
    code=$?
    if [ $code -eq 77 ] || [ $code -eq 127 ]; then
      echo "SKIP: Python's transformers and safetensors are not installed: exports are compared with their fixtures only"
    elif [ $code -ne 0 ]; then
      fault "transformers on $directory: $output"
    fi
  done
done

[ $faults -eq 0 ] || exit 1
echo ok
