//! The headers in `include` are what cbindgen makes of this crate.

use std::path::Path;

/// A header, and the modules of the crate that it declares, in its order.
struct Header {
    name: &'static str,
    modules: &'static [&'static str],
    /// Types of other modules that only the later headers use, and that have to be in this one.
    handles: &'static [&'static str],
}

/// The first includes the others.
const HEADERS: [Header; 8] = [
    Header {
        name: "freshwire.h",
        modules: &[
            "border",
            "common/structures",
            "handles",
            "meta",
            "types",
            "policy",
            "engine",
            "sender",
            "fanout",
            "sink",
        ],
        handles: &[
            "fw_reservation",
            "fw_receiver",
            "fw_node",
            "fw_incoming",
            "fw_group",
            "fw_stream",
            "fw_link",
            "fw_websocket",
        ],
    },
    Header { name: "freshwire/reservation.h", modules: &["reservation"], handles: &[] },
    Header { name: "freshwire/fate.h", modules: &["fate"], handles: &[] },
    Header { name: "freshwire/receiver.h", modules: &["receiver"], handles: &[] },
    Header {
        name: "freshwire/a1.h",
        modules: &["common/structures", "a1_types", "a1", "a1_connection", "incoming", "group", "stream"],
        handles: &[],
    },
    Header { name: "freshwire/policy.h", modules: &["gate", "adaptive"], handles: &[] },
    Header { name: "freshwire/websocket.h", modules: &["websocket"], handles: &[] },
    Header { name: "freshwire/link.h", modules: &["link"], handles: &[] },
];

impl Header {
    fn make(&self, folder: &Path) -> String {
        let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("the settings");
        let guard = self.name.to_uppercase().replace(['/', '.'], "_");
        config.include_guard = Some(guard);
        config.export.include.extend(self.handles.iter().map(|&name| name.to_owned()));
        let is_first = self.name == HEADERS[0].name;
        if is_first {
            let others = HEADERS[1..].iter().map(|header| format!("#include \"{}\"", header.name));
            config.trailer = Some(others.collect::<Vec<_>>().join("\n"));
        } else {
            config.export.include.clear();
            config.after_includes = Some(format!("#include \"../{}\"", HEADERS[0].name));
        }
        let builder =
            self.modules.iter().fold(cbindgen::Builder::new().with_config(config), |builder, module| {
                builder.with_src(folder.join(format!("src/{module}.rs")))
            });
        let mut made = Vec::new();
        builder.generate().expect("a header").write(&mut made);
        String::from_utf8(made).expect("text")
    }
}

#[test]
fn the_headers_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for header in &HEADERS {
        let made = header.make(folder);
        let lines = made.lines().count();
        assert!(
            lines <= 800,
            "{} has {lines} lines: give some of its modules a header of their own",
            header.name
        );
        let path = folder.join("include").join(header.name);
        if std::env::var_os("FRESHWIRE_WRITE_HEADER").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, &made).expect("written");
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            present == made,
            "{} is not what the sources say; set FRESHWIRE_WRITE_HEADER=1 to write it",
            path.display()
        );
    }
}
