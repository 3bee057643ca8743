//! Where the real parts are that tests start: installed by `cargo xtask parts`, never fetched by a
//! test. A missing part is an error that says how to get it; no test skips itself.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The folder of all parts: `$WAYPOST_PARTS`, else `waypost/parts` in the user's cache folder.
///
/// # Errors
/// Neither `WAYPOST_PARTS`, `XDG_CACHE_HOME` nor `HOME` is set.
pub fn dir() -> anyhow::Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("WAYPOST_PARTS") {
        return Ok(dir);
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("waypost/parts"))
        .context("no place for test parts: set WAYPOST_PARTS or HOME")
}

/// The folder of Apache Kafka's jars; `java -cp 'FOLDER/*' kafka.Kafka …` runs a broker.
///
/// # Errors
/// Not installed.
pub fn kafka_jars() -> anyhow::Result<PathBuf> {
    installed("Kafka's jars", &dir()?.join("kafka/lib"))
}

/// A Python with the packages of `tests/parts/python/NAME.txt`.
///
/// # Errors
/// Not installed.
pub fn python(venv: Venv) -> anyhow::Result<PathBuf> {
    installed(venv.name(), &dir()?.join(venv.name()).join("bin/python"))
}

/// The Python environments; see `tests/parts/python/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Venv {
    /// gRPC: client, server, health, CSDS.
    Grpc,
    /// A Kafka client that shares no code with ours.
    Kafka,
}

impl Venv {
    /// The environment's folder and requirements file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "venv-grpc",
            Self::Kafka => "venv-kafka",
        }
    }
}

/// Envoy's own binary, as its Python package brings it.
///
/// # Errors
/// Not installed.
pub fn envoy() -> anyhow::Result<PathBuf> {
    let lib = installed("Envoy", &dir()?.join("venv-envoy/lib"))?;
    let pythons = std::fs::read_dir(&lib).with_context(|| format!("{}", lib.display()))?;
    let binary = |python: PathBuf| python.join("site-packages/envoy/_bin/envoy");
    let mut found = pythons.flatten().map(|python| binary(python.path()));
    let first = found.find(|file| file.is_file());
    first.with_context(|| format!("Envoy: not in {}: run `cargo xtask parts`", lib.display()))
}

/// The programs of `tests/interop/go`, built.
///
/// # Errors
/// Not installed.
pub fn interop_go() -> anyhow::Result<PathBuf> {
    installed(
        "the programs of grpc-go",
        &dir()?.join("interop-go/interop"),
    )
}

/// The folder with the programs of `tests/interop/java` (`classes`) and their jars (`lib`).
///
/// # Errors
/// Not installed.
pub fn interop_java() -> anyhow::Result<PathBuf> {
    let folder = dir()?.join("interop-java");
    installed("the programs of grpc-java", &folder.join("classes"))?;
    Ok(folder)
}

/// The program of `tests/interop/rust`, built.
///
/// # Errors
/// Not installed.
pub fn interop_rust() -> anyhow::Result<PathBuf> {
    installed(
        "the program of tonic-xds",
        &dir()?.join("interop-rust/interop"),
    )
}

/// A program that a Debian package brings, by its name on the path.
///
/// # Errors
/// Not on the path.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .with_context(|| format!("{name} is not installed: run `cargo xtask parts`"))
}

/// The product's binary, as built beside the running test: `$WAYPOST_BIN`, else `waypost` in the
/// folder that this test was built into.
///
/// # Errors
/// Not built.
pub fn waypost() -> anyhow::Result<PathBuf> {
    if let Some(file) = std::env::var_os("WAYPOST_BIN") {
        return installed("the waypost binary", Path::new(&file));
    }
    let test = std::env::current_exe().context("where this test was built")?;
    let Some(found) = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("waypost"))
        .find(|f| f.is_file())
    else {
        bail!("the waypost binary is not built: run `cargo build -p waypost`");
    };
    Ok(found)
}

/// The root of the source tree.
#[must_use]
pub fn source_root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_owned()
}

fn installed(what: &str, path: &Path) -> anyhow::Result<PathBuf> {
    if !path.exists() {
        bail!(
            "{what}: not found at {}: run `cargo xtask parts`",
            path.display()
        );
    }
    Ok(path.to_owned())
}
