//! `waypost-prove NAME [--short] | --list | --names`: what `cargo xtask prove` builds and runs.

use std::process::ExitCode;

use anyhow::Context as _;
use waypost_e2e::figures::Figures;
use waypost_e2e::{Form, PROOFS, Proof, find_missing_variable, find_proof, mass_silence};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => list(),
        ["--names"] => names(),
        ["announcers", gateway, first, count, per_cluster] => {
            return announcers(gateway, [first, count, per_cluster]);
        }
        [name] => return prove(name, Form::Full),
        [name, "--short"] => return prove(name, Form::Short),
        _ => {
            eprintln!("usage: waypost-prove NAME [--short] | --list | --names");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// The part of a proof that is a process of its own, so that it can be killed.
fn announcers(gateway: &str, numbers: [&str; 3]) -> ExitCode {
    let [Ok(first), Ok(count), Ok(per_cluster)] = numbers.map(str::parse) else {
        eprintln!("usage: waypost-prove announcers GATEWAY FIRST COUNT PER_CLUSTER");
        return ExitCode::from(2);
    };
    let done = runtime().and_then(|runtime| {
        runtime.block_on(mass_silence::announce(gateway, first, count, per_cluster))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().context("cannot start")
}

/// One proof a line, for the test command; those that cannot run with the variable that is missing.
fn names() {
    for proof in PROOFS {
        match find_missing_variable(proof) {
            Some(variable) => println!("{} {variable}", proof.name),
            None => println!("{}", proof.name),
        }
    }
}

fn list() {
    for Proof {
        name,
        shows,
        needs,
        takes: (full, short),
        ..
    } in PROOFS
    {
        println!(
            "{name}\n    shows  {shows}\n    needs  {needs}\n    takes  {full} (--short: {short})"
        );
    }
}

fn prove(name: &str, form: Form) -> ExitCode {
    let Some(proof) = find_proof(name) else {
        eprintln!("no proof is called {name:?}: see `cargo xtask prove --list`");
        return ExitCode::from(2);
    };
    let mut figures = Figures::default();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on((proof.run)(form, &mut figures));
    // Figures last, whatever happened: a proof that does not hold says by how much.
    if let Err(error) = &outcome {
        eprintln!("\n{error:#}\n");
    }
    print!("{figures}");
    match outcome {
        Ok(()) => {
            println!("{name}: holds");
            ExitCode::SUCCESS
        }
        Err(_) => {
            println!("{name}: DOES NOT HOLD (the reason is above the figures)");
            ExitCode::FAILURE
        }
    }
}
