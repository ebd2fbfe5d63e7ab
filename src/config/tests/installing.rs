use super::{Files, errors};

#[test]
fn whoever_installs_comes_back_to_where_dogwatch_waits_or_the_address_is_refused() {
    let config = |url: &str| {
        format!(
            "[slack]\napp_token = {{ env = \"SLACK_APP_TOKEN\" }}\n[slack.oauth]\n\
             client_id = \"1.2\"\nclient_secret = {{ env = \"SLACK_CLIENT_SECRET\" }}\n\
             redirect_url = \"{url}\"\n"
        )
    };
    assert!(Files::new(&config("https://dw.example.com/slack/oauth")).load().is_ok());
    for (url, said) in [
        ("https://dw.example.com/slack/install", "it does not end in /slack/oauth"),
        ("https://dw.example.com/slack/oauth#here", "it does not end in /slack/oauth"),
        ("dw.example.com", "it does not end in /slack/oauth"),
        ("http://dw.example.com/slack/oauth", "it does not begin with https://"),
    ] {
        let errors = errors(&config(url));
        assert!(errors.contains("slack.oauth.redirect_url") && errors.contains(said), "{errors}");
    }
}
