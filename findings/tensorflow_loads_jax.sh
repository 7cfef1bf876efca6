#!/bin/sh
# Importing TensorFlow 2.12.1 loads JAX, which a script then has without importing it: tools that
# observe the import of a framework to find out what a job uses take such a job for one of JAX.
# Seen with tensorflow-cpu 2.12.1 and jax 0.4.30 on Python 3.11; 2.16.1 does not do it. The script
# ends with 1 if that changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
check() {
    python3 -m venv "$directory/$1"
    "$directory/$1/bin/pip" install --quiet "tensorflow-cpu==$1" jax==0.4.30 jaxlib==0.4.30 "numpy<2"
    "$directory/$1/bin/python" -c '
import sys
import tensorflow
print("tensorflow", tensorflow.__version__, "loads jax:", "jax" in sys.modules)
assert ("jax" in sys.modules) == (sys.argv[1] == "yes")
' "$2" 2>"$directory/errors" || { tail -3 "$directory/errors"; exit 1; }
}
check 2.12.1 yes
check 2.16.1 no
