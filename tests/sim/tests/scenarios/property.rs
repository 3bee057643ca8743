//! Any interleaving of everything else.

use waypost_sim::property;

/// Cases of every test run; `cargo xtask prove log-scenarios` plays very many more.
const CASES: u64 = 200;

#[test]
fn s33_whatever_happens_all_agree_and_nobody_living_is_missing() {
    if let Err(failure) = property::run(0, CASES) {
        panic!("{failure}");
    }
}
