#!/usr/bin/env bash
# Every status of CUDA, its driver, cuBLASLt and NCCL is checked: in folders named cuda a call of theirs stands in
# TRIAX_CUDA, TRIAX_CUBLASLT or TRIAX_NCCL, or its status is kept ("status = ") or thrown away in so many words
# (static_cast<void>). A kernel is launched by TRIAX_LAUNCH alone, which asks for the launch's status.
# The device that puts operations off hands on every operation of a device: one that it does not name would take the
# base class's way, beside the GPU's own.
source "$(dirname "$0")/lib.sh"
calls=0
while read -r line; do
  case $line in calls\ *) calls=$((calls + ${line#calls })) ;; *) fault "$line" ;; esac
done < <(product_files | grep -E '^[^/]+/cuda/.*\.(h|cpp|cu)$' | grep -v '^tests/' | while read -r file; do
  sed -e 's,//.*,,' "$file" | awk -v file="$file" '
    { text = text " " $0 }
    END {
      gsub(/[ \t\\]+/, " ", text)
      launches = gsub(/<<</, "<<<", text)
      if (file == "kernels/cuda/platform.h" && match(text, /<<<[^>]*>>>[^;]*; ::triax::kernels::cuda_check\(cudaGetLastError\(\)/))
        launches--
      if (launches > 0) print file ": a kernel is launched by hand: TRIAX_LAUNCH checks its status"
      while (match(text, /(^|[^A-Za-z0-9_])(cuda|cublasLt|cublas|nccl|cu)[A-Z][A-Za-z0-9_]*\(/)) {
        before = substr(text, 1, RSTART); call = substr(text, RSTART, RLENGTH)
        sub(/^[^A-Za-z_]/, "", call); sub(/\($/, "", call)
        text = substr(text, RSTART + RLENGTH)
        if (call ~ /String$/ || call == "ncclGetLastError" || call == "cublasLtGetVersion") continue  # no status
        count++
        if (before !~ /(TRIAX_CUDA\(|TRIAX_CUDA_DONE\(|TRIAX_CUBLASLT\(|TRIAX_NCCL\(|static_cast<void>\(|status = |cuda_check\() ?$/)
          print file ": " call ": its status is not checked (TRIAX_CUDA, TRIAX_CUBLASLT, TRIAX_NCCL)"
      }
      print "calls " count + 0
    }'
done)
graphs=kernels/cuda/graph_device.h
if [ -e $graphs ]; then
  for name in $(sed -nE 's/^  virtual [^(]*[ *&]([a-z_0-9]+)\(.*/\1/p' kernels/device.h | grep -vx recorder); do
    grep -qE "^  [A-Za-z].*[ *&]$name\(" $graphs || fault "$graphs: $name of kernels/device.h is not overridden"
  done
fi
finish "$calls calls of CUDA, cuBLASLt and NCCL, all checked"
