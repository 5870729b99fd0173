//! The modules stand in the order of the data, and each uses only those before it: so there is no circle among them.
//!
//! In a folder the same holds for its files, in the order in which the file above them declares them. What that file
//! itself defines (an error, the options) they may use.

use std::fs;
use std::path::Path;

/// The names in `mod name;` of a source, in order.
fn declared(source: &str) -> Vec<String> {
    let names = source.lines().filter_map(|line| {
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    names.map(String::from).collect()
}

/// A source without comments and without its tests, which may compare with anything.
fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or(source);
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| line.split(" //").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The paths at the beginning of `text`, which may be several in braces, and what is behind them.
fn paths(text: &str) -> (Vec<Vec<&str>>, &str) {
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', '\n', ',']);
            if let Some(behind) = rest.strip_prefix('}') {
                return (all, behind);
            }
            let (some, behind) = paths(rest);
            assert!(behind.len() < rest.len(), "no path: {}", &rest[..rest.len().min(40)]);
            all.extend(some);
            rest = behind;
        }
    }
    let length = text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    match rest.strip_prefix("::") {
        Some(rest) => {
            let (tails, rest) = paths(rest);
            (tails.into_iter().map(|tail| [vec![name], tail].concat()).collect(), rest)
        }
        None => (vec![vec![name]], rest.strip_prefix('*').unwrap_or(rest)),
    }
}

/// All paths of a source that begin with `root`, which is `crate::` or `super::`, without it.
fn paths_from<'a>(code: &'a str, root: &str) -> Vec<Vec<&'a str>> {
    code.match_indices(root).flat_map(|(at, _)| paths(&code[at + root.len()..]).0).collect()
}

/// What the source of `module`, or of its file `part`, uses though it stands behind it.
fn out_of_order(modules: &[String], parts: &[String], module: &str, part: Option<&str>, source: &str) -> Vec<String> {
    let place = |order: &[String], name: &str| order.iter().position(|known| known == name);
    let code = code(source);
    let mut wrong = Vec::new();
    let mut inside = Vec::new();
    for path in paths_from(&code, "crate::") {
        if path[0] == module {
            inside.push(path[1..].to_vec());
        } else if place(modules, path[0]) >= place(modules, module) || place(modules, path[0]).is_none() {
            wrong.push(format!("{module} uses {}", path[0]));
        }
    }
    let Some(part) = part else { return wrong };
    inside.extend(paths_from(&code, "super::"));
    for path in inside {
        if let Some(used) = path.first().and_then(|name| place(parts, name))
            && Some(used) >= place(parts, part)
        {
            wrong.push(format!("{module}/{part} uses {}", path[0]));
        }
    }
    wrong
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(String::from).collect()
}

#[test]
fn modules_use_only_those_before_them() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let modules = declared(&read(&sources.join("lib.rs")));
    assert_eq!(modules.last().map(String::as_str), Some("python"), "the binding is on top");
    let (mut wrong, mut files) = (Vec::new(), 1);
    for module in &modules {
        let front = read(&sources.join(module).with_extension("rs"));
        let parts = declared(&front);
        wrong.extend(out_of_order(&modules, &parts, module, None, &front));
        for part in &parts {
            let source = read(&sources.join(module).join(part).with_extension("rs"));
            wrong.extend(out_of_order(&modules, &parts, module, Some(part), &source));
        }
        files += 1 + parts.len();
    }
    assert_eq!(wrong, owned(&[]));

    let folders = fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let all = folders.chain([sources.clone()]).flat_map(|folder| fs::read_dir(folder).unwrap());
    let all = all.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "rs"));
    assert_eq!(all.count(), files, "every file is a module that was looked at");
}

#[test]
fn what_is_out_of_order_is_found() {
    let (modules, parts) = (owned(&["rows", "scan", "count"]), owned(&["pattern", "blocks"]));
    let check = |part, source| out_of_order(&modules, &parts, "scan", part, source);
    for fine in [
        "use crate::rows::Rows;",
        "use super::{Scanner, pattern::Rules};",
        "use crate::scan::pattern;",
        "// crate::count\nuse std::fmt;",
        "#[cfg(test)]\nmod tests {\n    use crate::count::Counter;\n}",
    ] {
        assert_eq!(check(Some("blocks"), fine), owned(&[]), "{fine}");
    }
    assert_eq!(check(None, "use crate::{rows::{self, Rows}, count::Counter};"), ["scan uses count"]);
    assert_eq!(check(None, "    let x = crate::count::new();"), ["scan uses count"]);
    assert_eq!(check(None, "use crate::nothing;"), ["scan uses nothing"]);
    assert_eq!(check(Some("pattern"), "use super::{\n    Scanner,\n    blocks::*,\n};"), ["scan/pattern uses blocks"]);
    assert_eq!(check(Some("pattern"), "use crate::scan::blocks::Blocks;"), ["scan/pattern uses blocks"]);
    assert_eq!(check(Some("blocks"), "use crate::count::{self};"), ["scan uses count"]);
}
