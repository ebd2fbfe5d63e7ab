//! What a character looks like to a reader. Owns the table of letters and brackets that pass for
//! others. Only letters of the marks are known; every other one is [`Fold::Other`].

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
    if is_open(c) {
        return Fold::Open;
    }
    if is_close(c) {
        return Fold::Close;
    }
    if matches!(c, '(' | ')') {
        return Fold::Other;
    }
    if is_invisible(c) {
        return Fold::Skip;
    }
    let small = c.to_lowercase().next().unwrap_or(c);
    let base = from_block(small).unwrap_or(small);
    if base == 'ﬁ' {
        return Fold::Pair(b'f', b'i');
    }
    match letter(base) {
        Some(letter) => Fold::Letter(letter),
        None if base.is_alphanumeric() => Fold::Other,
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
    Some(match c {
        'a'
        | '4'
        | '@'
        | 'à'..='å'
        | 'ª'
        | 'ā'
        | 'ă'
        | 'ą'
        | 'ǎ'
        | 'ǟ'
        | 'ǡ'
        | 'ǻ'
        | 'ȁ'
        | 'ȃ'
        | 'ȧ'
        | 'ḁ'
        | 'ẚ'
        | 'ạ'..='ặ'
        | 'ɑ'
        | 'ⱥ'
        | 'ᴀ'
        | 'ₐ'
        | 'ᵃ'
        | 'ᴬ'
        | 'а'
        | 'ӑ'
        | 'ӓ'
        | 'α'
        | 'ά'
        | 'ἀ'..='ἇ'
        | 'ὰ'
        | 'ᾰ'
        | 'ᾱ'
        | 'λ'
        | 'ꓮ'
        | 'ꭺ'
        | 'ⲁ' => b'a',
        'c' | '¢' | 'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' | 'ƈ' | 'ȼ' | 'ḉ' | 'ᴄ' | 'ᶜ' | 'с' | 'ҫ' | 'ϲ'
        | 'ⅽ' | 'ꓚ' | 'ꮯ' | 'ⲥ' | 'ℂ' | 'ℭ' => b'c',
        'e'
        | '3'
        | '€'
        | 'è'..='ë'
        | 'ē'
        | 'ĕ'
        | 'ė'
        | 'ę'
        | 'ě'
        | 'ȅ'
        | 'ȇ'
        | 'ȩ'
        | 'ɇ'
        | 'ḕ'
        | 'ḗ'
        | 'ḙ'
        | 'ḛ'
        | 'ḝ'
        | 'ẹ'..='ệ'
        | 'ᴇ'
        | 'ᵉ'
        | 'ₑ'
        | 'е'
        | 'ё'
        | 'ѐ'
        | 'ҽ'
        | 'ε'
        | 'έ'
        | 'є'
        | 'ꓰ'
        | 'ꭼ'
        | 'ⲉ'
        | 'ℯ'
        | 'ℰ' => b'e',
        'f' | 'ƒ' | 'ḟ' | 'ꜰ' | 'ᶠ' | 'ϝ' | 'ғ' | 'ꓝ' | 'ℱ' | 'ꞙ' => b'f',
        'i'
        | 'l'
        | '1'
        | 'ì'..='ï'
        | 'ĩ'
        | 'ī'
        | 'ĭ'
        | 'į'
        | 'ı'
        | 'ǐ'
        | 'ȉ'
        | 'ȋ'
        | 'ɨ'
        | 'ɩ'
        | 'ɪ'
        | 'ḭ'
        | 'ḯ'
        | 'ỉ'
        | 'ị'
        | 'ⁱ'
        | 'ᵢ'
        | 'ᴵ'
        | 'і'
        | 'ї'
        | 'ӏ'
        | 'ι'
        | 'ί'
        | 'ϊ'
        | 'ΐ'
        | 'ἰ'..='ἷ'
        | 'ὶ'
        | 'ⅰ'
        | 'ⅼ'
        | 'ꓲ'
        | 'ꭵ'
        | 'ⲓ'
        | 'ℹ'
        | 'ℐ'
        | 'ℑ'
        | 'ℓ'
        | 'ו'
        | 'ا'
        | '١'
        | '۱'
        | '𝚤' => b'i',
        'm' | 'ḿ' | 'ṁ' | 'ṃ' | 'ɱ' | 'ᴍ' | 'ᵐ' | 'ₘ' | 'м' | 'μ' | 'ⅿ' | 'ꓟ' | 'ꮇ' | 'ⲙ' | 'ℳ' => {
            b'm'
        }
        'n' | 'ñ' | 'ń' | 'ņ' | 'ň' | 'ŋ' | 'ǹ' | 'ɲ' | 'ɳ' | 'ɴ' | 'ⁿ' | 'ₙ' | 'ᴺ' | 'ᴎ' | 'ṅ'
        | 'ṇ' | 'ṉ' | 'ṋ' | 'п' | 'и' | 'й' | 'ո' | 'ռ' | 'η' | 'ή' | 'ν' | 'ꓠ' | 'ⲛ' | 'ℕ'
        | 'ƞ' => b'n',
        'o'
        | '0'
        | 'º'
        | 'ò'..='ö'
        | 'ø'
        | 'ō'
        | 'ŏ'
        | 'ő'
        | 'ơ'
        | 'ǒ'
        | 'ǫ'
        | 'ǭ'
        | 'ȍ'
        | 'ȏ'
        | 'ȫ'
        | 'ȭ'
        | 'ȯ'
        | 'ȱ'
        | 'ɵ'
        | 'ṍ'
        | 'ṏ'
        | 'ṑ'
        | 'ṓ'
        | 'ọ'..='ợ'
        | 'ᴏ'
        | 'ᵒ'
        | 'ₒ'
        | 'ᴼ'
        | 'о'
        | 'ӧ'
        | 'ө'
        | 'ο'
        | 'ό'
        | 'ὀ'..='ὅ'
        | 'ὸ'
        | 'σ'
        | 'ω'
        | 'օ'
        | 'ꓳ'
        | 'ⲟ'
        | 'ℴ'
        | 'ס'
        | 'ه'
        | '٥'
        | '०'
        | '০'
        | '੦'
        | '૦'
        | '௦'
        | '๐'
        | '໐'
        | '၀'
        | '〇'
        | '○'
        | '◯' => b'o',
        'r' | 'ŕ' | 'ŗ' | 'ř' | 'ȑ' | 'ȓ' | 'ɍ' | 'ʀ' | 'ʳ' | 'ᵣ' | 'ᴿ' | 'г' | 'ṙ' | 'ṛ' | 'ṝ'
        | 'ṟ' | 'ꓣ' | 'ⲅ' | 'ℛ' | 'ℜ' | 'ℝ' | 'я' => b'r',
        's' | '5' | '$' | 'ś' | 'ŝ' | 'ş' | 'š' | 'ș' | 'ſ' | 'ƽ' | 'ʂ' | 'ṡ' | 'ṣ' | 'ṥ' | 'ṧ'
        | 'ṩ' | 'ꜱ' | 'ˢ' | 'ₛ' | 'ѕ' | 'ꓢ' | 'ꮪ' | 'տ' => b's',
        't' | '7' | '†' | '⊤' | 'ţ' | 'ť' | 'ŧ' | 'ț' | 'ƫ' | 'ƭ' | 'ʈ' | 'ṫ' | 'ṭ' | 'ṯ' | 'ṱ'
        | 'ẗ' | 'ᴛ' | 'ᵗ' | 'ₜ' | 'ᵀ' | 'т' | 'ҭ' | 'τ' | 'ꓔ' | 'ꭲ' | 'ⲧ' => {
            b't'
        }
        'u'
        | 'ù'..='ü'
        | 'ũ'
        | 'ū'
        | 'ŭ'
        | 'ů'
        | 'ű'
        | 'ų'
        | 'ư'
        | 'ǔ'
        | 'ǖ'
        | 'ǘ'
        | 'ǚ'
        | 'ǜ'
        | 'ȕ'
        | 'ȗ'
        | 'ʉ'
        | 'ʊ'
        | 'ʋ'
        | 'ṳ'
        | 'ṵ'
        | 'ṷ'
        | 'ṹ'
        | 'ṻ'
        | 'ụ'..='ự'
        | 'ᴜ'
        | 'ᵘ'
        | 'ᵤ'
        | 'ᵁ'
        | 'υ'
        | 'ύ'
        | 'ὐ'..='ὗ'
        | 'ս'
        | 'ц'
        | 'ꓴ'
        | 'ᑌ'
        | '∪' => b'u',
        'y' | 'ý' | 'ÿ' | 'ŷ' | 'ȳ' | 'ɏ' | 'ƴ' | 'ẏ' | 'ỳ' | 'ỵ' | 'ỷ' | 'ỹ' | 'ʏ' | 'ʸ' | 'у'
        | 'ү' | 'ў' | 'γ' | 'ꓬ' | 'ⲩ' | '¥' => b'y',
        _ => return None,
    })
}
