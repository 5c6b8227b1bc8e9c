#!/bin/sh
# build.sh [FOLDER]: compiles get.ts to FOLDER/module.wasm (this folder by default) and puts functions.toml beside it,
# which together can be installed. Needs the compiler of AssemblyScript (npm package assemblyscript, 0.27.37 is tested);
# SPLINTER_ASC names it where it is not `asc`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here}"
out=$(cd "${1:-$here}" && pwd)

cd "$here"
"${SPLINTER_ASC:-asc}" get.ts --optimize --outFile "$out/module.wasm" --runtime ./runtime --use abort=runtime/abort \
  --initialMemory 256 --maximumMemory 256 --memoryBase 65536 --disable bulk-memory
[ "$out/functions.toml" -ef "$here/functions.toml" ] || cp "$here/functions.toml" "$out/functions.toml"
