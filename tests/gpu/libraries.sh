#!/usr/bin/env bash
# libraries.sh: where a bundle's executables find their libraries; run and quickstart source it.

# library_path BUNDLE: for LD_LIBRARY_PATH. CUDA's libraries come in folders of their own beside
# torch. Python itself must not get the bundle's: it has its own.
library_path() {
  local site folder path=$1/lib
  site=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
  path=$path:$site/lib
  for folder in "$site"/../nvidia/*/lib; do path=$path:$folder; done
  echo "$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
