//! What is written from the command line's own description: completions and manual pages.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::Cli;
use crate::command::tell;
use crate::exit::{self, Exit};
use crate::output;

pub(crate) fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    tell(output::print(&script))
}

pub(crate) fn manual(subcommand: Option<&str>) -> Exit {
    let mut command = Cli::command();
    command.build();
    let page = match subcommand {
        None => main_page(command),
        Some(name) => match command.find_subcommand(name) {
            Some(command) => sub_page(command.clone()),
            None => {
                output::complain("there is no such subcommand");
                return Exit::Usage;
            }
        },
    };
    tell(page.and_then(|page| output::print(&page)))
}

fn main_page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut codes = Roff::new();
    codes.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::rows() {
        codes.control("TP", []);
        codes.text([bold(code)]);
        codes.text([roman(meaning)]);
    }
    let man = Man::new(command);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    codes.to_writer(&mut page)?;
    Ok(page)
}

fn sub_page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let source = concat!("leasehold ", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(source).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    const PAGE: &str = include_str!("../../leasehold/src/manual/the_command.md");

    #[test]
    fn the_manual_names_each_option_and_the_commands_that_have_it() {
        let command = Cli::command();
        for subcommand in command.get_subcommands() {
            for long in subcommand.get_arguments().filter_map(Arg::get_long) {
                let row = PAGE
                    .lines()
                    .find(|line| line.contains(&format!("`--{long}")));
                let row = row.unwrap_or_else(|| panic!("no row for --{long}"));
                let name = format!("`{}`", subcommand.get_name());
                assert!(
                    row.split('|').nth(2).unwrap().contains(&name),
                    "--{long}: {name}"
                );
            }
        }
    }

    #[test]
    fn the_manual_names_each_command_and_global_option() {
        let command = Cli::command();
        for subcommand in command.get_subcommands() {
            let row = format!("| `{}", subcommand.get_name());
            assert!(PAGE.contains(&row), "{row}");
        }
        for long in command.get_arguments().filter_map(Arg::get_long) {
            let row = format!("`--{long}");
            assert!(PAGE.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_manual_has_each_exit_code() {
        for (code, _) in exit::rows() {
            let shown = code.replace('+', " + ");
            let row = PAGE.lines().any(|line| {
                line.split('|')
                    .nth(1)
                    .is_some_and(|codes| codes.split(", ").any(|it| it.trim() == shown))
            });
            assert!(row || code == "0..255", "{code}");
        }
    }
}
