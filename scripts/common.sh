# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of this folder: where the tree is, where the cache is, how to speak, how to give up.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# KVARENA_HOME: libtorch and models, made once and shared between clones.
if [ -z "${KVARENA_HOME:-}" ]; then
  if [ -z "${HOME:-}" ]; then
    echo "kvarena: neither KVARENA_HOME nor HOME is set; set KVARENA_HOME to a folder with 2 GB free" >&2
    exit 1
  fi
  KVARENA_HOME=$HOME/.cache/kvarena
fi
KVARENA_HOME=$(realpath -m -- "$KVARENA_HOME")
export KVARENA_HOME
PATH=$KVARENA_HOME/tools/bin:$PATH  # CMake and Ninja, where scripts/setup had to bring them

say() { printf '[%s] %s\n' "$(basename "$0")" "$*"; }

# One sentence on what is wrong and what to do, then out.
die() {
  printf '[%s] %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# free_mb FOLDER -> megabytes free on the file system that would hold FOLDER (which need not exist yet).
free_mb() {
  local folder=$1
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  df -Pm -- "$folder" | awk 'NR == 2 { print $4 }'
}

# need_mb FOLDER MEGABYTES PURPOSE
need_mb() {
  local free
  free=$(free_mb "$1")
  [ "$free" -ge "$2" ] || die "the disk is too full: $1 has $free MB free and $3 needs $2 MB; free some space" \
    "${4:-} and run this again"
}
