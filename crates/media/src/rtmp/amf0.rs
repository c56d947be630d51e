//! The values of commands and of metadata (Action Message Format, AMF 0).

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// A text.
    String(String),
    /// Named values in their order; associative arrays ("ECMA arrays") and typed objects, too.
    Object(Vec<(String, Value)>),
    /// Values in their order.
    Array(Vec<Value>),
    /// Nothing; also undefined.
    Null,
    /// Milliseconds since 1970.
    Date(f64),
}

impl Value {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The value of this name, if it is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(fields) => fields.iter().find(|(known, _)| known == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Adds its bytes to `out`. Texts are cut at 65,535 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => {
                out.push(marker::NUMBER);
                out.extend(number.to_be_bytes());
            }
            Self::Boolean(value) => out.extend([marker::BOOLEAN, (*value).into()]),
            Self::String(text) => {
                out.push(marker::STRING);
                write_text(text, out);
            }
            Self::Object(fields) => {
                out.push(marker::OBJECT);
                for (name, value) in fields {
                    write_text(name, out);
                    value.write(out);
                }
                out.extend([0, 0, marker::OBJECT_END]);
            }
            Self::Array(values) => {
                out.push(marker::STRICT_ARRAY);
                out.extend(u32::try_from(values.len()).unwrap_or(u32::MAX).to_be_bytes());
                values.iter().for_each(|value| value.write(out));
            }
            Self::Null => out.push(marker::NULL),
            Self::Date(time) => {
                out.push(marker::DATE);
                out.extend(time.to_be_bytes());
                out.extend([0, 0]);
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

/// An object of these fields.
pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The bytes of these values, one behind the other.
pub fn write_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<u8> {
    let mut out = Vec::new();
    values.into_iter().for_each(|value| value.write(&mut out));
    out
}

/// Bytes that are no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmfError {
    /// They end within a value.
    #[error("the values of a command end too early")]
    Short,
    /// A text that is not UTF-8.
    #[error("a text of a command is not UTF-8")]
    Text,
    /// A type that commands do not have. References are refused too: few of them stand for any number of values.
    #[error("a value of type {0:#04x} in a command")]
    Type(u8),
    /// Objects within objects above the limit of [`MOST_DEPTH`].
    #[error("objects within objects, more than {MOST_DEPTH} deep")]
    Depth,
}

/// Objects and arrays within each other. Commands have two.
pub const MOST_DEPTH: usize = 16;

/// Reads all values. Memory: some twenty times the bytes at most, so bound those.
///
/// # Errors
///
/// If the bytes are no values.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Value>, AmfError> {
    let mut reader = Reader { bytes, depth: 0 };
    let mut values = Vec::new();
    while !reader.bytes.is_empty() {
        values.push(reader.value()?);
    }
    Ok(values)
}

struct Reader<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Value, AmfError> {
        let [kind] = self.array()?;
        Ok(match kind {
            marker::NUMBER => Value::Number(f64::from_be_bytes(self.array()?)),
            marker::BOOLEAN => Value::Boolean(self.array::<1>()? != [0]),
            marker::STRING => Value::String(self.text()?),
            marker::LONG_STRING | marker::XML => {
                let len = u32::from_be_bytes(self.array()?);
                Value::String(self.text_of(usize::try_from(len).unwrap_or(usize::MAX))?)
            }
            marker::NULL | marker::UNDEFINED | marker::UNSUPPORTED => Value::Null,
            marker::DATE => {
                let time = f64::from_be_bytes(self.array()?);
                self.array::<2>()?;
                Value::Date(time)
            }
            marker::OBJECT => self.nested(Self::fields)?,
            marker::ECMA_ARRAY => {
                // How many there are is only a hint.
                self.array::<4>()?;
                self.nested(Self::fields)?
            }
            marker::TYPED_OBJECT => {
                self.text()?;
                self.nested(Self::fields)?
            }
            marker::STRICT_ARRAY => {
                let count = u32::from_be_bytes(self.array()?);
                self.nested(|reader| {
                    let values = (0..count).map(|_| reader.value()).collect::<Result<_, _>>()?;
                    Ok(Value::Array(values))
                })?
            }
            kind => return Err(AmfError::Type(kind)),
        })
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, AmfError>) -> Result<Value, AmfError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(AmfError::Depth);
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Named values up to the end of an object. Some encoders leave the end out behind the last one.
    fn fields(&mut self) -> Result<Value, AmfError> {
        let mut fields = Vec::new();
        while !self.bytes.is_empty() {
            let name = self.text()?;
            if name.is_empty() && self.bytes.first() == Some(&marker::OBJECT_END) {
                self.array::<1>()?;
                break;
            }
            fields.push((name, self.value()?));
        }
        Ok(Value::Object(fields))
    }

    fn text(&mut self) -> Result<String, AmfError> {
        let len = u16::from_be_bytes(self.array()?);
        self.text_of(len.into())
    }

    fn text_of(&mut self, len: usize) -> Result<String, AmfError> {
        let (text, rest) = self.bytes.split_at_checked(len).ok_or(AmfError::Short)?;
        self.bytes = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| AmfError::Text)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], AmfError> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(AmfError::Short)?;
        self.bytes = rest;
        Ok(*array)
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(u16::MAX.into());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.extend((end as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes().get(..end).unwrap_or_default());
}

mod marker {
    pub(super) const NUMBER: u8 = 0;
    pub(super) const BOOLEAN: u8 = 1;
    pub(super) const STRING: u8 = 2;
    pub(super) const OBJECT: u8 = 3;
    pub(super) const NULL: u8 = 5;
    pub(super) const UNDEFINED: u8 = 6;
    pub(super) const ECMA_ARRAY: u8 = 8;
    pub(super) const OBJECT_END: u8 = 9;
    pub(super) const STRICT_ARRAY: u8 = 10;
    pub(super) const DATE: u8 = 11;
    pub(super) const LONG_STRING: u8 = 12;
    pub(super) const UNSUPPORTED: u8 = 13;
    pub(super) const XML: u8 = 15;
    pub(super) const TYPED_OBJECT: u8 = 16;
}

#[cfg(test)]
mod tests;
