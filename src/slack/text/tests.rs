use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::mrkdwn::mrkdwn;
use super::split::{size, split};
use super::tame::tame;
use super::*;

#[test]
fn markdown_becomes_mrkdwn_and_code_stays() {
    let cases = [
        ("**bold** and *soft* and ***both***", "*bold* and _soft_ and *_both_*"),
        ("__bold__ _soft_ ~~gone~~", "*bold* _soft_ ~gone~"),
        ("# Title\n### **Sub** title ##", "*Title*\n*Sub title*"),
        ("- one\n  * two\n+ three\n1. four", "• one\n  • two\n• three\n1. four"),
        ("> quoted <b>", "> quoted &lt;b&gt;"),
        ("a & b < c > d", "a &amp; b &lt; c &gt; d"),
        ("&lt;!channel&gt;", "&amp;lt;!channel&amp;gt;"),
        ("[logs](https://example.com/a?b=1&c=2)", "<https://example.com/a?b=1&amp;c=2|logs>"),
        ("![a|b](https://example.com/x|y \"t\")", "<https://example.com/x%7Cy|a¦b>"),
        ("<https://example.com>", "<https://example.com>"),
        ("[x](javascript:alert) [y](!channel)", "[x](javascript:alert) [y](!channel)"),
        ("`**x** <y>` and ``a ` b``", "`**x** &lt;y&gt;` and `a ` b`"),
        ("```rust\nlet a: &T<U> = **b;\n```", "```\nlet a: &amp;T&lt;U&gt; = **b;\n```"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
        (r"\*not\* soft", "*not* soft"),
        ("**open", "**open"),
        ("**a *b* c**", "*a _b_ c*"),
        ("````\n```\n````", "```\n``\u{200b}`\n```"),
        ("####### seven", "####### seven"),
        ("", ""),
    ];
    for (markdown, expected) in cases {
        assert_eq!(mrkdwn(markdown), expected, "{markdown}");
    }
}

#[test]
fn slack_30_no_text_calls_people() {
    let calls = [
        ("<!channel>", "‹!channel›"),
        ("<!here|here>", "‹!here|here›"),
        ("<!everyone> now", "‹!everyone› now"),
        ("<!subteam^S012AB>", "‹!subteam^S012AB›"),
        ("<@U012AB> and <@W1|x>", "‹@U012AB› and ‹@W1|x›"),
        ("<#C012AB>", "‹#C012AB›"),
        ("< ! channel >", "‹ ! channel ›"),
        ("<\u{200b}!chan\u{2060}nel>", "‹\u{200b}!chan\u{2060}nel›"),
        ("<\\!channel>", "‹\\!channel›"),
        ("<!CHANNEL>", "‹!CHANNEL›"),
        ("<\u{0}!channel>", "‹!channel›"),
        ("@channel @Here, @everyone!", "＠channel ＠Here, ＠everyone!"),
        ("@\u{200b}channel @ch\u{2060}annel", "＠\u{200b}channel ＠ch\u{2060}annel"),
        ("`<!channel>`", "`‹!channel›`"),
        ("&lt;!channel&gt; &#60;!here>", "＆lt;!channel&gt; ＆#60;!here>"),
        ("<&excl;channel> &commat;here", "‹&excl;channel› ＆commat;here"),
        ("&#x40;everyone @&#x63;hannel", "＆#x40;everyone ＠&#x63;hannel"),
    ];
    for (text, expected) in calls {
        assert_eq!(tame(text), expected, "{text:?}");
        assert_eq!(tame(expected), expected, "{text:?}");
        for live in ["<!", "<@", "<#", "< !", "@channel", "@here", "@everyone"] {
            assert!(!mrkdwn(&tame(text)).contains(live), "{text:?} has {live}");
        }
    }
    let harmless = [
        "a < b and b > c",
        "<https://example.com|x>",
        "<!DOCTYPE html> <!-- -->",
        "@channels @hereabouts @someone me@here.example",
        "List<@Override> if a <@ b",
        "1 < ! x",
        "a &lt; b &amp;& c; &#64; &bogus; &#xffffffffff;",
    ];
    for text in harmless {
        assert_eq!(tame(text), text);
    }
}

#[test]
fn a_fence_that_is_cut_is_closed_and_opened_again_with_its_language() {
    let text = format!("before\n\n```rust\n{}```\n\nafter", "let a = 1;\n".repeat(200));
    let texts: Vec<_> = split(&text, 400).into_iter().map(|piece| piece.text()).collect();
    assert!(texts.len() >= 3);
    assert!(texts[0].starts_with("before\n\n```rust\nlet a"));
    for (number, text) in texts.iter().enumerate() {
        assert!(number == 0 || text.starts_with("```rust\nlet a"), "{text}");
        assert!(number + 1 == texts.len() || text.ends_with("let a = 1;\n```"), "{text}");
    }
    assert!(texts.last().unwrap().ends_with("after"));
    let code: usize = texts.iter().map(|text| text.matches("let a = 1;").count()).sum();
    assert_eq!(code, 200);
}

#[test]
fn a_cut_prefers_paragraphs_then_lines_then_words_and_spares_signs() {
    let texts = |text: &str, max| -> Vec<String> {
        split(text, max).into_iter().map(|piece| piece.text()).collect()
    };
    let paragraph = "word ".repeat(30);
    let text = format!("{paragraph}\n\n{paragraph}\nline\n\n{paragraph}");
    let first = format!("{paragraph}\n\n{paragraph}\nline");
    assert_eq!(texts(&text, 360), [first.as_str(), paragraph.trim_end()]);
    let lines = "0123456789\n".repeat(100);
    assert!(texts(&lines, 300).iter().all(|text| text.lines().all(|line| line.len() == 10)));
    let words = "wonderful ".repeat(100);
    let split_words = texts(&words, 300);
    assert!(split_words.iter().all(|text| text.split(' ').all(|word| word == "wonderful")));
    let families = "👨‍👩‍👧‍👦".repeat(60);
    for text in texts(&families, 300) {
        assert!(text.starts_with('👨') && text.ends_with('👦'), "{text}");
    }
}

#[test]
fn what_is_too_long_for_messages_is_a_file_with_its_beginning_before_it() {
    let text = "All is well.\n".repeat(4_000);
    let Plan { parts, intro } = plan(&text);
    assert_eq!(parts.len(), 5);
    let intro = intro.unwrap();
    assert!(intro.markdown.contains("All of it, 4000 lines with 52000 characters, is in the file"));
    assert!(size(&intro.markdown) < 3_300 && size(&intro.text) <= SLACK_TEXT_CHARS_MAX);
    assert!(plan(&"x".repeat(34_000)).intro.is_none());
}

#[test]
fn a_notification_is_the_beginning_and_says_that_there_is_more() {
    let Plan { parts, .. } = plan(&format!("{}\n\nthe end", "a < b. ".repeat(1_000)));
    assert_eq!(parts.len(), 1);
    assert!(parts[0].text.starts_with("a &lt; b. a &lt; b."));
    assert!(parts[0].text.ends_with(MORE));
    assert_eq!(plan("").parts[0].markdown, "(nothing)");
}

#[test]
fn hostile_lines_cost_no_more_than_their_length_allows() {
    for piece in ["*", "`", "_a", "[", "[](", "<", "<!", "\\", "~~a ", "``` ", "**a*"] {
        let text = piece.repeat(30_000 / piece.len());
        let parts = plan(&text).parts;
        assert!(!parts.is_empty());
    }
}

/// Is every fence closed? Told apart from what the splitter knows.
fn balanced(text: &str) -> bool {
    let inside = text
        .lines()
        .map(str::trim)
        .fold(false, |inside, line| if inside { line != "```" } else { line.starts_with("```") });
    !inside
}

fn lines() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        3 => "[a-z <>&@!*_äß👍]{0,60}",
        1 => Just("```".to_owned()),
        1 => Just("```sh".to_owned()),
        1 => Just(String::new()),
        1 => "[a-z👍]{200,500}",
    ];
    proptest::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn pieces_are_the_text_within_their_limit_with_closed_fences(
        text in lines(),
        max in 150_usize..800,
    ) {
        let pieces = split(&text, max);
        let whole: String = pieces.iter().map(|piece| piece.body).collect();
        prop_assert_eq!(&whole, &text);
        for piece in pieces {
            let text = piece.text();
            prop_assert!(size(&text) <= max, "{} > {max}: {text}", size(&text));
            prop_assert!(balanced(&text), "{text}");
        }
    }

    #[test]
    fn both_forms_of_every_part_fit(text in lines(), times in 1_usize..60) {
        let Plan { parts, .. } = plan(&text.repeat(times));
        for part in parts {
            prop_assert!(size(&part.markdown) <= SLACK_BLOCK_CHARS_MAX - SLACK_MARK_CHARS_MAX);
            prop_assert!(size(&part.text) <= SLACK_TEXT_CHARS_MAX);
            for text in plain(&part.markdown) {
                prop_assert!(size(&text) <= SLACK_TEXT_CHARS_MAX);
                prop_assert!(text.matches("```").count() % 2 == 0, "{text}");
            }
        }
    }

    #[test]
    fn nothing_that_is_tamed_is_live(text in "[<>!@# \\\\\u{200b}chanelroyU1|^]{0,60}") {
        let tamed = tame(&text);
        prop_assert_eq!(tame(&tamed), tamed.clone());
        let seen: String = tamed.chars().filter(|c| !" \\\u{200b}".contains(*c)).collect();
        for live in ["<!channel", "<!here", "<@U", "<#c"] {
            prop_assert!(!seen.contains(live), "{tamed:?} has {live}");
        }
    }
}

#[test]
fn slack_30_what_is_shown_of_a_text_is_always_the_beginning_of_the_whole() {
    let texts = [
        "One line.\nTwo <!channel> & &lt;!here> of @everyone.\n\n```\na < b\n```\nend <@U7> x",
        "no line at all, but <!cha",
        "a & b\u{2028}<\u{200b}!here>\r\nc @here",
        "   \n\n x",
    ];
    for text in texts {
        let whole = super::tame::tame(text);
        let mut before = String::new();
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let shown = begun(&text[..at], 1_000);
            assert!(whole.starts_with(&shown), "{shown:?} of {whole:?}");
            assert!(shown.starts_with(&before), "{before:?} of {shown:?}");
            before = shown;
        }
    }
    assert_eq!(begun("first\nsecond <", 1_000), "first\nsecond");
    assert_eq!(begun("first\nsecond <b> and\nmore", 1_000), "first\nsecond <b> and\nmore");
    assert_eq!(begun("äöü", 3), "ä");
}
