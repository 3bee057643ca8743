//! `waypost-sim property --cases N [--seed FIRST] | replay --seed SEED | mutants DIRECTORY [NAME…]`: the
//! property test of the log's rules, and the planted bugs that its scenarios must find.

use std::path::Path;
use std::process::ExitCode;

use waypost_sim::copy::TreeCopy;
use waypost_sim::{mutants, property};

const USAGE: &str = "usage: waypost-sim property --cases N [--seed FIRST] | replay --seed SEED | \
                     mutants DIRECTORY [NAME...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["property", "--cases", cases] => play(number(cases).map(|cases| (0, cases))),
        ["property", "--cases", cases, "--seed", seed] => play(number(seed).zip(number(cases))),
        ["replay", "--seed", seed] => play(number(seed).map(|seed| (seed, 1))),
        ["mutants", scratch, ..] => plant(Path::new(scratch), &args[2..]),
        _ => fail(USAGE),
    }
}

fn play(cases: Option<(u64, u64)>) -> ExitCode {
    let Some((first, cases)) = cases else {
        return fail(USAGE);
    };
    // A case that fails is told once it is small; panics on the way there are not.
    std::panic::set_hook(Box::new(|_| {}));
    let done = if cases == 1 {
        property::replay(first)
    } else {
        property::run(first, cases)
    };
    match done {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(failure) => fail(&failure.to_string()),
    }
}

fn plant(scratch: &Path, names: &[String]) -> ExitCode {
    let mut tell = |found: &mutants::Found| println!("{found}");
    let done = TreeCopy::make(&waypost_sim::root(), scratch);
    match done.and_then(|copy| mutants::run(&copy, names, &mut tell)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}
