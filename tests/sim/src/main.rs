//! `waypost-sim property --cases N [--seed S] | replay --seed S`: the property test of the log's rules.

use std::process::ExitCode;

use waypost_sim::property;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    // A case that fails is told once it is small; panics on the way there are not.
    std::panic::set_hook(Box::new(|_| {}));
    let done = match words[..] {
        ["property", "--cases", cases] => number(cases).map(|cases| property::run(0, cases)),
        ["property", "--cases", cases, "--seed", seed] => number(cases)
            .zip(number(seed))
            .map(|(cases, seed)| property::run(seed, cases)),
        ["replay", "--seed", seed] => number(seed).map(property::replay),
        _ => None,
    };
    match done {
        Some(Ok(figures)) => {
            println!("{}", property::describe(figures));
            ExitCode::SUCCESS
        }
        Some(Err(failure)) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: waypost-sim property --cases N [--seed FIRST] | replay --seed SEED");
            ExitCode::from(2)
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}
