//! `include/freshwire.h` is what cbindgen makes of this crate.

use std::path::Path;

/// In the order of the header.
const SOURCES: [&str; 19] = [
    "border",
    "handles",
    "meta",
    "types",
    "policy",
    "engine",
    "sender",
    "fanout",
    "sink",
    "receiver",
    "a1_types",
    "a1",
    "a1_connection",
    "incoming",
    "group",
    "stream",
    "gate",
    "adaptive",
    "link",
];

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("the settings");
    let builder = SOURCES.iter().fold(cbindgen::Builder::new().with_config(config), |builder, source| {
        builder.with_src(folder.join(format!("src/{source}.rs")))
    });
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = folder.join("include/freshwire.h");
    if std::env::var_os("FRESHWIRE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == made,
        "{} is not what the sources say; set FRESHWIRE_WRITE_HEADER=1 to write it",
        path.display()
    );
}
