//! The fault cases, each by its own sequence, and the table of all of them: which test shows a
//! case, and what it asserts. Rows D are section D of the peers' behaviours.
//!
//! Left to later capabilities: the kinds of B02 besides scripts, `job__collect` of B20, timers and
//! cron of B44, B102, B104, B105 and B116, scheduled sessions of D17, other channels of D35.
//!
//! Each row: id, test, what it asserts.
//!
//! - **B01** `b01_an_end_without_output_is_told_at_once_and_says_so`:
//!   an exit without output wakes by itself, one notice says the output is empty
//! - **B02** `b02_every_ending_of_a_script_is_exactly_one_completion`:
//!   nine endings, each one completion, one notice, one fate, no second wake after a start and a
//!   day
//! - **B05** `b05_a_notice_that_was_before_the_model_is_offered_once_after_a_crash`:
//!   the offered notice stays in the open turn, one copy, acked at the commit
//! - **B05** `b05_a_turn_that_broke_off_goes_on_without_a_second_copy`:
//!   the machine resumes from its log alone
//! - **B05** `b05_a_notice_before_the_model_of_a_dead_node_is_offered_once_by_another`:
//!   two replicas: the other resumes the turn, one copy, one post
//! - **B06** `b06_a_completion_waits_ten_minutes_for_a_busy_chat`:
//!   no give-up for busy; delivered at the next boundary, marked as late
//! - **B06** `b06_a_completion_of_another_node_waits_ten_minutes_for_a_busy_chat`:
//!   two replicas: completed at one, told by the other, once and as late
//! - **B07** `b07_what_the_model_refuses_dies_is_told_once_and_holds_nobody_up`:
//!   400 and 401: dead at once, people told once, the next message runs
//! - **B07** `b07_a_notice_that_never_gets_through_dies_at_the_cap`:
//!   five attempts, then the same
//! - **B07** `b07_what_fails_at_every_node_dies_and_is_told_once`:
//!   three replicas: five attempts in all, people told once
//! - **B08** `b08_a_busy_turn_hears_at_each_end_of_a_batch`:
//!   notices enter with the last result of each batch
//! - **B08** `a_completion_steers_a_busy_turn_in_its_last_tool_result`:
//!   the same on the wire: merged into the last result, once
//! - **B09** `b09_everything_that_wakes_starts_a_turn_of_an_idle_chat`:
//!   each status that nobody asked for starts a turn
//! - **B13** `the_end_of_a_script_resumes_the_chat_that_started_it`:
//!   a turn starts without input and posts
//! - **B16** `b16_a_frozen_reader_is_woken_and_nothing_is_lost`:
//!   a stopped shim gets CONT, its output is whole
//! - **B16** `b16_a_stopped_shim_is_shown_woken_and_loses_nothing`:
//!   it is shown as stalled meanwhile
//! - **B17** `b17_b26_a_script_outlives_forty_turns_and_is_told_once_at_its_end`:
//!   forty turns and six hours end nothing
//! - **B18** `b18_what_comes_at_a_turns_end_adds_a_round_and_stands_once`:
//!   one copy in the log and in later requests
//! - **B18** `b18_a_notice_enters_the_log_once`:
//!   the machine writes it once
//! - **B18** `b18_b19_completions_at_other_nodes_steer_the_turn_that_runs`:
//!   three replicas: one copy each in the log
//! - **B19** `b19_twenty_completions_in_a_busy_chat_are_one_copy_each`:
//!   twenty names once each, few requests
//! - **B19** `b18_b19_completions_at_other_nodes_steer_the_turn_that_runs`:
//!   three replicas: the same
//! - **B20** `b20_what_the_model_cancels_is_delivered_in_the_result_and_never_again`:
//!   fate collected, no notice in 24 hours
//! - **B25** `b25_what_was_acked_and_forgotten_never_speaks_again`:
//!   ten hours of sweeps, retention, an unknown id: no request
//! - **B26** `b17_b26_a_script_outlives_forty_turns_and_is_told_once_at_its_end`:
//!   no envelope before the terminal record
//! - **B27** `b27_a_person_is_answered_before_an_older_notice`:
//!   a person who writes during an outage has the last word of the next request
//! - **B27** `b27_a_persons_words_stand_before_a_notice_of_the_same_take`:
//!   people first within one take
//! - **B27** `b27_peer_d18_an_old_completion_says_when_it_finished`:
//!   finish time and age
//! - **B29** `b29_a_late_end_of_what_was_stopped_is_a_fact_and_touches_nothing_else`:
//!   first terminal state stands, the late result is a fact, the other execution and the address
//!   are untouched
//! - **B30** `b30_a_newer_one_with_the_same_key_ends_the_older_silently`:
//!   killed, fate superseded, never told
//! - **B33** `b33_a_notice_goes_to_the_chat_that_started_the_work`:
//!   another busy chat has no trace
//! - **B33** `b33_no_chat_can_see_or_end_the_work_of_another`:
//!   list, cancel and output of another chat fail
//! - **B35** `b35_a_wake_brings_its_result_with_it`:
//!   the output stands in the item that wakes
//! - **B35** `b35_the_result_stands_in_the_notice_itself`:
//!   by its template
//! - **B42** `b42_a_chat_is_answered_once_and_by_the_node_at_which_people_read`:
//!   three replicas, twenty chats: one answer each
//! - **B44** `b44_a_chain_that_wakes_itself_ends_and_says_so`:
//!   as many wakes as allowed, then word to people, then silence for a day
//! - **B44** `b44_the_last_wake_of_a_chain_says_so`:
//!   the closing entry
//! - **B46** `b46_stop_all_works_while_the_model_is_down_and_nothing_wakes_after_it`:
//!   stop all, the process is gone, no request after it, also after a start
//! - **B46** `a_person_cancels_and_the_notice_rides_with_the_next_turn`:
//!   cancel by id
//! - **B46** `a_server_that_is_not_there_is_said_and_a_message_does_not_wait`:
//!   view and stop without a server
//! - **B50** `b50_an_idle_day_asks_no_model`:
//!   24 hours, no request, no process
//! - **B56** `b56_a_timeout_says_that_the_outcome_is_unknown_and_reruns_nothing`:
//!   side effect once, the notice says to verify
//! - **B57** `b57_a_deadline_is_told_in_time_though_a_grandchild_holds_the_pipe`:
//!   in group and in a session of its own; output before it kept
//! - **B57** `b57_a_deadline_takes_daemons`:
//!   double fork
//! - **B59** `b59_b110_a_killed_bot_comes_back_at_once_and_accounts_for_each_script`:
//!   SIGKILL of the program: one ended, one adopted, one lost with its reason, each told once
//! - **B59** `b59_b110_two_thousand_completions_outlive_nodes_that_are_killed_at_random`:
//!   2,000 of 200 chats: each told once and in order, the audit is even
//! - **B60** `b60_a_flood_is_told_by_its_head_and_its_tail`:
//!   bounded on the wire and on disk
//! - **B60** `b60_an_endless_flood_ends_at_the_deadline`:
//!   drained and discarded
//! - **B62** `b62_a_pid_in_the_lock_is_no_evidence`:
//!   a stranger with the stored pid lives
//! - **B63** `b63_a_recovery_that_is_cut_twice_ends_like_one`:
//!   two cuts, then running, cancellable, notify policy kept
//! - **B63** `b63_a_script_outlives_two_bots`:
//!   adopted twice
//! - **B64** `b64_a_graceful_restart_leaves_scripts_running_and_the_chat_is_told`:
//!   the script ends while nobody is there
//! - **B67** `b67_only_its_own_deadline_ends_a_script`:
//!   an idle hour ends nothing
//! - **B68** `b68_the_end_of_one_of_six_restarts_no_other`:
//!   five listed as running, six registered in the end
//! - **B69** `b02_every_ending_of_a_script_is_exactly_one_completion`:
//!   exactly one request for each completion
//! - **B69** `b69_a_turn_resumed_with_its_results_asks_the_model_once`:
//!   also after a crash with results in the log
//! - **B70** `b70_after_a_compaction_what_runs_is_still_listed`:
//!   `Compact` with a summary: the table is of the store
//! - **B70** `b70_the_live_table_comes_from_the_store_and_is_bounded`:
//!   its bounds
//! - **B72** `b72_a_restart_between_all_turns_tells_a_loss_once`:
//!   four starts, one notice
//! - **B73** `b73_b74_any_output_leaves_the_chat_able_to_go_on`:
//!   characters across every cap
//! - **B73** `b73_a_four_byte_character_across_either_edge_is_dropped_whole`:
//!   each edge
//! - **B74** `b73_b74_any_output_leaves_the_chat_able_to_go_on`:
//!   all byte values, escapes, separators; the next turn works
//! - **B74** `b74_all_byte_values_and_separators`:
//!   cleaned at capture
//! - **B76** `b76_of_all_that_looks_like_a_notice_one_is`:
//!   output, name, chat and the model's own text: one genuine envelope on the wire
//! - **B76** `b76_every_decoration_of_the_marker_is_made_inert`:
//!   any decoration
//! - **B78** `b78_our_templates_state_facts_only`:
//!   no orders in templates
//! - **B80** `b80_a_secret_reaches_nobody_and_no_disk`:
//!   output in two pieces, chat, the model's text, a provider's error: not on the wire, in posts,
//!   progress or store
//! - **B80** `b80_a_value_across_the_pieces_of_a_line_without_end_is_found`:
//!   across pieces
//! - **B102** `b102_a_deadline_is_an_instant_and_a_start_does_not_move_it`:
//!   two starts leave the due time; the programs of B59 and B108 start in other time zones
//! - **B104** `b104_of_two_nodes_one_ends_an_overdue_script_and_one_runs_its_turn`:
//!   two nodes, one completion, one turn of 150 s
//! - **B105** `b105_a_long_turn_makes_no_other_deadline_late`:
//!   two other deadlines are told while one chat is busy
//! - **B107** `b107_a_node_that_stood_still_finds_its_turn_done_by_another`:
//!   the stale answer is refused and not posted
//! - **B107** `b107_a_node_that_stood_still_is_buried_and_goes_on_under_a_new_name`:
//!   it writes nothing twice, and its script runs on
//! - **B108** `b108_b109_a_turn_that_a_kill_cut_is_answered_after_the_start`:
//!   SIGKILL in a turn: resumed, one request more
//! - **B108** `b108_a_dead_nodes_script_is_unattended_until_its_host_is_back`:
//!   two replicas: the chat goes on, the script is adopted
//! - **B109** `b108_b109_a_turn_that_a_kill_cut_is_answered_after_the_start`:
//!   SIGKILL right after the tool said started
//! - **B109** `b109_what_was_said_to_be_started_is_in_the_record`:
//!   record, then id, then process
//! - **B109** `b109_a_message_that_was_taken_is_answered_after_a_crash`:
//!   accepted is answered, a repeat is one
//! - **B109** `b109_a_message_that_a_node_took_before_it_died_is_answered_by_another`:
//!   two replicas: accepted is answered, a repeat is one
//! - **B110** `b59_b110_a_killed_bot_comes_back_at_once_and_accounts_for_each_script`:
//!   the next start needs no cleaning up
//! - **B110** `b110_a_lock_file_that_was_left_behind_stops_nobody`:
//!   of the store
//! - **B110** `b110_a_lock_file_without_a_holder_stops_nobody`:
//!   of the spool
//! - **B110** `b59_b110_two_thousand_completions_outlive_nodes_that_are_killed_at_random`:
//!   each start after a kill works at once
//! - **B116** `b116_a_machine_that_was_suspended_ends_what_is_overdue_once_and_no_sooner`:
//!   8 hours inside 23: not early, once, and the process ends
//! - **B116** `b116_what_ended_while_the_bot_was_away_is_told_as_late_as_it_is`:
//!   a notice that waited is told once, its text unchanged
//! - **D1** `peer_d01_every_malformed_argument_is_refused_with_its_name_and_cure`:
//!   bounds of the arguments (64 KiB and no default, by DESIGN)
//! - **D2** `peer_d02_peer_d03_the_answer_of_the_call_names_the_execution`:
//!   id, status, name
//! - **D3** `peer_d02_peer_d03_the_answer_of_the_call_names_the_execution`:
//!   the id's form; the number never wraps
//! - **D5** `peer_d05_a_script_runs_isolated_in_a_directory_of_its_own`:
//!   isolated, few variables, own directory
//! - **D6** `b60_a_flood_is_told_by_its_head_and_its_tail`:
//!   head and tail, by DESIGN
//! - **D7** `peer_d07_what_is_raised_is_told_with_its_traceback`:
//!   print and traceback
//! - **D9** `peer_d31_only_a_persons_new_message_opens_a_stopped_chat`:
//!   a stopped chat runs no turn that could start anything
//! - **D10** `peer_d10_one_completion_has_the_exact_form`:
//!   the form; the verb follows the status, by DESIGN
//! - **D11** `b56_a_timeout_says_that_the_outcome_is_unknown_and_reruns_nothing`:
//!   a status of its own, by DESIGN
//! - **D13** `peer_d13_what_was_stopped_never_wakes_and_its_end_stands`:
//!   stopped: no notice, first status stands
//! - **D14** `peer_d14_what_somebody_else_ended_is_a_failure_and_wakes`:
//!   ended by a stranger: failed, told
//! - **D15** `completions_that_stand_together_are_one_turn`:
//!   one synthetic turn for two
//! - **D17** `peer_d17_peer_d19_a_chat_gets_the_whole_result_as_data`:
//!   no pointer instead of the result
//! - **D18** `b06_a_completion_waits_ten_minutes_for_a_busy_chat`:
//!   delayed after five minutes
//! - **D19** `peer_d17_peer_d19_a_chat_gets_the_whole_result_as_data`:
//!   the rule in the prompt
//! - **D21** `peer_d21_peer_d23_an_opened_stream_is_no_delivery_and_a_failed_turn_tries_again`:
//!   acked only by a whole answer
//! - **D22** `peer_d22_peer_d27_a_synthetic_turn_has_the_lane_like_any_other`:
//!   steered or queued, never two turns
//! - **D23** `peer_d21_peer_d23_an_opened_stream_is_no_delivery_and_a_failed_turn_tries_again`:
//!   backs off; nothing is discarded silently, by DESIGN
//! - **D25** `b19_twenty_completions_in_a_busy_chat_are_one_copy_each`:
//!   a burst drops none
//! - **D26** `peer_d22_peer_d27_a_synthetic_turn_has_the_lane_like_any_other`:
//!   what waits follows at once
//! - **D27** `peer_d22_peer_d27_a_synthetic_turn_has_the_lane_like_any_other`:
//!   one lane
//! - **D29** `a_person_steers_a_busy_turn_and_quick_messages_are_one_turn`:
//!   busy is no error
//! - **D30** `peer_d30_a_silent_stream_is_abandoned_and_what_drips_is_not`:
//!   silence fails, activity does not
//! - **D31** `peer_d31_only_a_persons_new_message_opens_a_stopped_chat`:
//!   stopped until a person writes, also over a start
//! - **D33** `b33_a_notice_goes_to_the_chat_that_started_the_work`:
//!   the launching chat only
//! - **D34** `peer_d34_what_follows_from_a_steered_completion_is_the_same_turn`:
//!   same turn, same chain
//! - **D35** `peer_d35_a_synthetic_turn_shows_that_it_is_one_before_it_speaks`:
//!   began, synthetic, before text

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod addressing;
mod budgets;
mod delivery;
mod output;
mod peer_d;
mod processes;
mod timers;

use std::collections::BTreeSet;
use std::path::Path;

/// A script that waits until somebody reads its fifo.
fn waits(on: &str, then: &str) -> String {
    format!("open({on:?}, 'w').close()\n{then}")
}

/// The cases that this step promises.
const PROMISED: &str = "\
    B01 B02 B05 B06 B07 B08 B09 B13 B16 B17 B18 B19 B20 B25 B26 B27 B29 B30 B33 B35 B42 B44 \
    B46 B50 B56 B57 B59 B60 B62 B63 B64 B67 B68 B69 B70 B72 B73 B74 B76 B78 B80 B102 B104 B105 \
    B107 B108 B109 B110 B116 D1 D2 D3 D5 D6 D7 D9 D10 D11 D13 D14 D15 D17 D18 D19 D21 D22 D23 \
    D25 D26 D27 D29 D30 D31 D33 D34 D35";

/// Adds the names of all functions below.
fn functions(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn each_promised_case_has_a_test_and_each_named_test_is_there() {
    let mut known = BTreeSet::new();
    for dir in ["src", "tests"] {
        functions(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut known);
    }
    let mut shown = BTreeSet::new();
    let rows = include_str!("cases.rs").lines().filter_map(|line| line.strip_prefix("//! - **"));
    for row in rows {
        let (id, test) = row.split_once("** `").unwrap();
        let test = test.trim_end_matches("`:");
        assert!(known.contains(test), "{id}: there is no {test}");
        shown.insert(id);
    }
    let missing: Vec<_> = PROMISED.split_whitespace().filter(|id| !shown.contains(id)).collect();
    assert!(missing.is_empty(), "no test shows {missing:?}");
}
