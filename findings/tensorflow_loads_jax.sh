#!/bin/sh
# Importing TensorFlow loads JAX where it is installed, although the script never imports it: tools
# that observe the import of a framework to find out what a job uses take such a job for one of JAX.
# Seen with tensorflow-cpu 2.12.1 and 2.16.1 beside jax 0.4.30 on Python 3.11. The script ends with 1
# if that changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for version in 2.12.1 2.16.1; do
    python3 -m venv "$directory/$version"
    "$directory/$version/bin/pip" install --quiet "tensorflow-cpu==$version" jax==0.4.30 \
        jaxlib==0.4.30 "numpy<2"
    "$directory/$version/bin/python" -c '
import sys
import tensorflow
print("tensorflow", tensorflow.__version__, "loads jax:", "jax" in sys.modules)
assert "jax" in sys.modules
' 2>"$directory/errors" || { tail -3 "$directory/errors"; exit 1; }
done
