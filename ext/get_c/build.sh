#!/bin/sh
# build.sh [FOLDER]: compiles get.c to FOLDER/module.wasm (this folder by default) and puts functions.toml beside it,
# which together can be installed. Needs clang, and the linker of the Rust toolchain; WASM_LD names another wasm-ld.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
mkdir -p "$out"
wasm_ld=${WASM_LD:-$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/wasm-ld}

clang --target=wasm32 -mcpu=mvp -O2 -Wall -Wextra -Werror -std=c11 -ffreestanding -nostdlib \
  -c "$here/get.c" -o "$out/get.o"
"$wasm_ld" --no-entry --strip-all --stack-first -z stack-size=65408 --global-base=65536 \
  --initial-memory=16777216 --max-memory=16777216 --export=__heap_base "$out/get.o" -o "$out/module.wasm"
rm "$out/get.o"
[ "$out/functions.toml" -ef "$here/functions.toml" ] || cp "$here/functions.toml" "$out/functions.toml"
