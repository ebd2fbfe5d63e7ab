//! The forms in which a known value may appear. Owns their encodings.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// A shorter piece of base64 would be found in ordinary text.
const BASE64_CHARS_MIN: usize = 8;

/// The value itself and its encodings.
pub(super) fn of(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), percent(value, false), percent(value, true)];
    if let Ok(json) = serde_json::to_string(value) {
        forms.push(json.trim_matches('"').to_owned());
    }
    for offset in 0..3 {
        let core = base64_core(value.as_bytes(), offset);
        if core.len() >= BASE64_CHARS_MIN {
            forms.push(core.replace('+', "-").replace('/', "_"));
            forms.push(core);
        }
    }
    forms
}

fn percent(value: &str, lower: bool) -> String {
    let mut out = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let digits: &[u8; 16] =
                    if lower { b"0123456789abcdef" } else { b"0123456789ABCDEF" };
                out.push('%');
                for half in [byte >> 4, byte & 0xf] {
                    out.extend(digits.get(usize::from(half)).map(|d| char::from(*d)));
                }
            }
        }
    }
    out
}

/// The base64 characters that depend on the value alone, where it stands `offset` bytes after a
/// multiple of three in what was encoded.
fn base64_core(value: &[u8], offset: usize) -> String {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(value);
    let whole_bits = padded.len() * 8;
    let first = (offset * 8).div_ceil(6);
    let sextet = |i: usize| {
        let bit = i * 6;
        let byte = |n: usize| u16::from(padded.get(n).copied().unwrap_or_default());
        let pair = (byte(bit / 8) << 8) | byte(bit / 8 + 1);
        usize::from((pair >> (10 - bit % 8)) & 0x3f)
    };
    (first..whole_bits / 6)
        .filter_map(|i| STANDARD.get(sextet(i)))
        .map(|b| char::from(*b))
        .collect()
}
