//! What a character looks like to a reader. Owns the table of letters and brackets that pass for
//! others. Only letters of the marks are known; every other one is [`Fold::Other`].

use std::collections::HashMap;
use std::sync::LazyLock;

/// How a character counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// It separates or decorates, or cannot be seen.
    Skip,
    /// An opening bracket, round ones excepted.
    Open,
    /// A closing one.
    Close,
    /// It passes for this letter.
    Letter(u8),
    /// It passes for these two.
    Pair(u8, u8),
    /// It is read, as something else.
    Other,
}

/// How `c` counts.
pub(super) fn fold(c: char) -> Fold {
    match c {
        ' ' | '\n' => return Fold::Skip,
        '(' | ')' => return Fold::Other,
        _ if is_open(c) => return Fold::Open,
        _ if is_close(c) => return Fold::Close,
        _ if c.is_ascii() => return plain(c.to_ascii_lowercase()),
        _ => {}
    }
    if is_invisible(c) {
        return Fold::Skip;
    }
    let small = c.to_lowercase().next().unwrap_or(c);
    let base = from_block(small).unwrap_or(small);
    if base == 'ﬁ' {
        return Fold::Pair(b'f', b'i');
    }
    plain(base)
}

fn plain(c: char) -> Fold {
    match letter(c) {
        Some(letter) => Fold::Letter(letter),
        None if c.is_alphanumeric() => Fold::Other,
        None => Fold::Skip,
    }
}

/// Brackets of the fence and those that cannot be told from them.
pub(super) const fn fence(c: char) -> Option<&'static str> {
    match c {
        '⟦' | '〚' | '⟬' | '⁅' | '⦋' | '⦍' | '⦏' => Some("["),
        '⟧' | '〛' | '⟭' | '⁆' | '⦌' | '⦎' | '⦐' => Some("]"),
        _ => None,
    }
}

const fn is_open(c: char) -> bool {
    matches!(
        c,
        '[' | '{'
            | '<'
            | '⟦'
            | '〚'
            | '⟬'
            | '⁅'
            | '⦋'
            | '⦍'
            | '⦏'
            | '［'
            | '【'
            | '〔'
            | '〖'
            | '〘'
            | '❲'
            | '⎡'
            | '⎣'
            | '「'
            | '『'
            | '｢'
            | '｛'
            | '＜'
            | '⟨'
            | '〈'
            | '《'
            | '‹'
            | '«'
            | '⌈'
            | '⌊'
            | '﹇'
            | '︻'
            | '﹝'
            | '⸢'
            | '⸤'
            | '❴'
            | '❬'
            | '❮'
            | '❰'
    )
}

const fn is_close(c: char) -> bool {
    matches!(
        c,
        ']' | '}'
            | '>'
            | '⟧'
            | '〛'
            | '⟭'
            | '⁆'
            | '⦌'
            | '⦎'
            | '⦐'
            | '］'
            | '】'
            | '〕'
            | '〗'
            | '〙'
            | '❳'
            | '⎤'
            | '⎦'
            | '」'
            | '』'
            | '｣'
            | '｝'
            | '＞'
            | '⟩'
            | '〉'
            | '》'
            | '›'
            | '»'
            | '⌉'
            | '⌋'
            | '﹈'
            | '︼'
            | '﹞'
            | '⸣'
            | '⸥'
            | '❵'
            | '❭'
            | '❯'
            | '❱'
    )
}

/// Zero-width and combining characters, fillers, variation selectors and tags.
pub(super) const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}'
        | '\u{61c}' | '\u{64b}'..='\u{65f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{20d0}'..='\u{20ff}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Underscores and what passes for one.
pub(super) const fn is_underscore(c: char) -> bool {
    matches!(
        c,
        '_' | '＿' | '‿' | '⁀' | '⁔' | '︳' | '︴' | '﹍' | '﹎' | '﹏' | 'ˍ' | '▁' | '\u{332}'
    )
}

/// Blocks that hold the alphabet in order: full width, mathematical, circled, squared, flags.
fn from_block(c: char) -> Option<char> {
    const BLOCKS: [(u32, u32); 9] = [
        (0xff41, 0xff5a),
        (0x249c, 0x24b5),
        (0x24d0, 0x24e9),
        (0x1d400, 0x1d6a3),
        (0x1f110, 0x1f129),
        (0x1f130, 0x1f149),
        (0x1f150, 0x1f169),
        (0x1f170, 0x1f189),
        (0x1f1e6, 0x1f1ff),
    ];
    let code = u32::from(c);
    if code < 0x249c {
        return None;
    }
    let (first, _) = BLOCKS.iter().find(|(a, z)| (*a..=*z).contains(&code))?;
    let place = u8::try_from((code - first) % 26).ok()?;
    Some(char::from(b'a' + place))
}

/// The letter of the marks that a small `c` passes for.
fn letter(c: char) -> Option<u8> {
    if c.is_ascii() {
        return ascii_letter(c);
    }
    LETTERS.get(&c).copied()
}

const fn ascii_letter(c: char) -> Option<u8> {
    Some(match c {
        'a' | '4' | '@' => b'a',
        'c' => b'c',
        'e' | '3' => b'e',
        'f' => b'f',
        'i' | 'l' | '1' => b'i',
        'm' => b'm',
        'n' => b'n',
        'o' | '0' => b'o',
        'r' => b'r',
        's' | '5' | '$' => b's',
        't' | '7' => b't',
        'u' => b'u',
        'y' => b'y',
        _ => return None,
    })
}

static LETTERS: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    PASSES_FOR.iter().flat_map(|(letter, passes)| passes.chars().map(|c| (c, *letter))).collect()
});

/// Latin with marks, small capitals, raised and lowered letters, then Greek, Cyrillic, Armenian,
/// Coptic, Cherokee, Lisu and others, in small letters where there are.
const PASSES_FOR: [(u8, &str); 13] = [
    (b'a', "àáâãäåªāăąǎǟǡǻȁȃȧḁẚạảấầẩẫậắằẳẵặɑⱥᴀₐᵃᴬаӑӓαάἀἁἂἃἄἅἆἇὰᾰᾱλꓮꭺⲁ"),
    (b'c', "¢çćĉċčƈȼḉᴄᶜсҫϲⅽꓚꮯⲥℂℭ"),
    (b'e', "€èéêëēĕėęěȅȇȩɇḕḗḙḛḝẹẻẽếềểễệᴇᵉₑеёѐҽεέєꓰꭼⲉℯℰ"),
    (b'f', "ƒḟꜰᶠϝғꓝℱꞙ"),
    (b'i', "ìíîïĩīĭįıǐȉȋɨɩɪḭḯỉịⁱᵢᴵіїӏιίϊΐἰἱἲἳἴἵἶἷὶⅰⅼꓲꭵⲓℹℐℑℓוا١۱𝚤"),
    (b'm', "ḿṁṃɱᴍᵐₘмμⅿꓟꮇⲙℳ"),
    (b'n', "ñńņňŋǹɲɳɴⁿₙᴺᴎṅṇṉṋпийոռηήνꓠⲛℕƞ"),
    (b'o', "ºòóôõöøōŏőơǒǫǭȍȏȫȭȯȱɵṍṏṑṓọỏốồổỗộớờởỡợᴏᵒₒᴼоӧөοόὀὁὂὃὄὅὸσωօꓳⲟℴסه٥०০੦૦௦๐໐၀〇○◯"),
    (b'r', "ŕŗřȑȓɍʀʳᵣᴿгṙṛṝṟꓣⲅℛℜℝя"),
    (b's', "śŝşšșſƽʂṡṣṥṧṩꜱˢₛѕꓢꮪտ"),
    (b't', "†⊤ţťŧțƫƭʈṫṭṯṱẗᴛᵗₜᵀтҭτꓔꭲⲧ"),
    (b'u', "ùúûüũūŭůűųưǔǖǘǚǜȕȗʉʊʋṳṵṷṹṻụủứừửữựᴜᵘᵤᵁυύὐὑὒὓὔὕὖὗսцꓴᑌ∪"),
    (b'y', "ýÿŷȳɏƴẏỳỵỷỹʏʸуүўγꓬⲩ¥"),
];
