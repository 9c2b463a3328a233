#!/usr/bin/env bash
# `triax data` as a user runs it: data.sh TRIAX SOURCE. Exit codes, what is printed, files that other commands read.
. "$(dirname "$0")/expect.sh"
source_dir=$2

data() { "$triax" data "$@"; }
corpus=$source_dir/data/demo/pride_and_prejudice.txt
byte=(--tokenizer-type ByteLevelTokenizer)

expect 0 'train-tokenizer' data --help
expect 2 'there is no such command' data bild
expect 2 'usage: triax data' data
for command in build show verify merge train-tokenizer; do expect 0 "usage: triax data $command" data $command --help; done

expect 0 'documents      62' data build --input "$corpus" --document-separator '\n\n\n' --append-eod "${byte[@]}" --output-prefix pp
expect 0 'EOD appended   yes, id ' data build --input "$corpus" --append-eod "${byte[@]}" --output-prefix whole
expect 0 'EOD appended   no' data build --input "$corpus" "${byte[@]}" --output-prefix bare
expect 2 'pp_text_document.bin' data build --input "$corpus" "${byte[@]}" --output-prefix pp
expect 0 'wrote' data build --input "$corpus" "${byte[@]}" --output-prefix bare --overwrite
expect 2 "unrecognised option '--inp'" data build --inp "$corpus"
expect 2 '--tokenizer-type: is required' data build --input "$corpus" --output-prefix x
expect 2 '--split-sentences: not supported' data build --split-sentences
expect 2 '--partitions 3: only 1' data build --partitions 3
expect 2 '--workers 0: must be 1 to 1024' data build --workers 0
expect 5 'none.txt: cannot open' data build --input none.txt "${byte[@]}" --output-prefix x
expect 5 'cannot make the directory' data build --input "$corpus" "${byte[@]}" --output-prefix "$corpus/x"

# One text without EOD: the .bin is the text, each byte a u16 that the tokenizer numbers.
[ "$(stat -c %s bare_text_document.bin)" -eq $((2 * $(stat -c %s "$corpus"))) ] || { echo "FAULT: size of bare.bin"; faults=$((faults + 1)); }
data show bare_text_document --decode --document 0 --format json >shown.json
grep -q 'It is a truth universally acknowledged' shown.json || { echo "FAULT: show --decode"; faults=$((faults + 1)); }

# The same JSONL plain, compressed and from a pipe gives the same bytes.
for i in $(seq 500); do echo "{\"text\": \"document $i\", \"id\": $i}"; done >a.jsonl
expect 0 'documents      500' data build --input a.jsonl "${byte[@]}" --output-prefix a --workers 3
gzip -k a.jsonl
expect 0 'documents      500' data build --input a.jsonl.gz "${byte[@]}" --output-prefix b --workers 1
expect 0 'documents      500' bash -c "'$triax' data build --input - --tokenizer-type ByteLevelTokenizer --output-prefix c <a.jsonl"
for other in b c; do
  for suffix in bin idx; do
    cmp "a_text_document.$suffix" "${other}_text_document.$suffix" || faults=$((faults + 1))
  done
done
echo '{"text": cut' >>a.jsonl
expect 5 'a.jsonl line 501: no valid JSON' data build --input a.jsonl "${byte[@]}" --output-prefix d
expect 0 'bad lines      1 skipped' data build --input a.jsonl "${byte[@]}" --output-prefix d --skip-bad-lines

expect 2 'EOD appended' data merge --input pp_text_document.bin a_text_document --output-prefix both
expect 0 'documents      1000' data merge --input a_text_document b_text_document --output-prefix twice
expect 0 'good: 1000 documents' data verify twice
expect 0 'good' data verify a_text_document pp_text_document.idx
expect 4 'outside the vocabulary of 60' data verify a_text_document --vocab-size 60
truncate -s -1 a_text_document.bin
expect 4 'the .bin is cut' data verify a_text_document
expect 5 'the .bin is cut' data show a_text_document
expect 2 '--document 62: must be 0 to 61' data show pp_text_document --document 62

expect 0 '--merge-file tok-merges.txt' data train-tokenizer --input "$corpus" --vocab-size 300 --output-prefix tok
expect 0 'GPT2BPETokenizer, 300 ids' data build --input "$corpus" --tokenizer-type GPT2BPETokenizer --vocab-file tok-vocab.json --merge-file tok-merges.txt --output-prefix bpe
expect 0 'universally' data show bpe_text_document --decode --document 0
expect 2 'was made with' data show pp_text_document --decode --tokenizer-type GPT2BPETokenizer --vocab-file tok-vocab.json --merge-file tok-merges.txt

[ $faults -eq 0 ] && echo "ok: triax data"
exit $((faults > 0))
