//! Values of AMF0 (Adobe's Action Message Format, 2007), as commands and metadata have them. Only what a publisher writes.

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(f64),
    /// A truth value.
    Boolean(bool),
    /// A text of at most 65,535 bytes; the rest is cut off.
    Text(&'a str),
    /// Nothing.
    Null,
    /// Texts by number.
    Texts(&'a [&'a str]),
    /// Named values, in this order.
    Object(&'a [(&'a str, Value<'a>)]),
    /// Named values of a script's array.
    Array(&'a [(&'a str, Value<'a>)]),
}

impl Value<'_> {
    /// Adds the value, with its type.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => {
                out.push(0);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::Boolean(value) => out.extend_from_slice(&[1, u8::from(value)]),
            Self::Text(text) => {
                out.push(2);
                write_text(text, out);
            }
            Self::Null => out.push(5),
            Self::Texts(texts) => {
                out.push(10);
                write_count(texts.len(), out);
                texts.iter().for_each(|text| Value::Text(text).write(out));
            }
            Self::Object(entries) => {
                out.push(3);
                write_entries(entries, out);
            }
            Self::Array(entries) => {
                out.push(8);
                write_count(entries.len(), out);
                write_entries(entries, out);
            }
        }
    }
}

fn write_entries(entries: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
    for (name, value) in entries {
        write_text(name, out);
        value.write(out);
    }
    out.extend_from_slice(&[0, 0, 9]);
}

fn write_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    let end = (0..=text.len().min(u16::MAX.into())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    out.extend_from_slice(&(end as u16).to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}
