//! Bugs that somebody could plant, each with the scenarios that must find it.

/// A planted bug: a piece of text in a file of the product, and what stands there instead.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// What it does wrong.
    pub what: &'static str,
    /// Where, from the root of the tree.
    pub file: &'static str,
    /// What stands there once, exactly.
    pub find: &'static str,
    /// What is put there.
    pub replace: &'static str,
    /// Beginnings of the names of the scenarios that are run; one of them must fail.
    pub found_by: &'static [&'static str],
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "eager-expire",
        what: "acts on an expire when writing it, not when reading it",
        file: "crates/fold/src/replica.rs",
        find: "            self.push_keeper_records(now);\n",
        replace: r"            self.push_keeper_records(now);
            for request in &self.requests {
                if let Request::Append(new) = request
                    && new.headers.kind == waypost_core::RecordKind::Expire
                    && let Some(partition) = new.partition
                {
                    let clock = self.announcements.served().clock().find(partition);
                    let record = Record {
                        partition,
                        offset: clock.map_or(Offset(0), crate::clock::PartitionClock::position),
                        append_time: clock.and_then(|c| c.last_append()).unwrap_or_default(),
                        key: Some(new.key.clone()),
                        value: None,
                        headers: Ok(new.headers),
                    };
                    self.announcements.for_each_fold(|fold| {
                        fold.apply(&record, &mut Vec::new());
                    });
                }
            }
",
        found_by: &["s18_", "s21_"],
    },
    Mutant {
        name: "blind-to-evidence",
        what: "an expire counts whatever was announced after its evidence",
        file: "crates/fold/src/rules.rs",
        find: "    if evidence < last.offset {\n",
        replace: "    if evidence < last.offset && r.record.offset.0 < 0 {\n",
        found_by: &["s04_", "s19_"],
    },
    Mutant {
        name: "too-young-expire",
        what: "an expire counts however young the announcement is",
        file: "crates/fold/src/rules.rs",
        find: "    if age_ms >= ttl_ms || r.clock.may_have_missed_since(last.offset) {\n",
        replace: "    if age_ms >= 0 || r.clock.may_have_missed_since(last.offset) {\n",
        found_by: &["s19_", "s26_"],
    },
    Mutant {
        name: "distrusts-the-writer",
        what: "who missed ticks does not take an expire at its word",
        file: "crates/fold/src/rules.rs",
        find: "    if age_ms >= ttl_ms || r.clock.may_have_missed_since(last.offset) {\n",
        replace: "    if age_ms >= ttl_ms {\n",
        found_by: &["s28_"],
    },
    Mutant {
        name: "wall-clock",
        what: "log time advances by whatever a clock says has passed",
        file: "crates/fold/src/clock.rs",
        find: "            .saturating_add(passed.clamp(0, millis(TICK_STEP_MAX))),\n",
        replace: "            .saturating_add(passed.clamp(0, millis(TICK_STEP_MAX) * 100_000)),\n",
        found_by: &["s02_", "s03_", "s25_"],
    },
    Mutant {
        name: "backward-clock",
        what: "log time goes back with a clock",
        file: "crates/fold/src/clock.rs",
        find: "            .saturating_add(passed.clamp(0, millis(TICK_STEP_MAX))),\n",
        replace: "            .saturating_add(passed.clamp(-100_000_000, millis(TICK_STEP_MAX))),\n",
        found_by: &["s02_", "s28_"],
    },
    Mutant {
        name: "announcers-clock",
        what: "order comes from the clock of the announcer's host",
        file: "crates/fold/src/rules.rs",
        find: "        let arriving = Arriving { life, value };\n",
        replace: r"        let life = Life {
            birth: decode(value).ok().map(|a| a.origin).or(life.birth),
            ..life
        };
        let arriving = Arriving { life, value };
",
        found_by: &["s07_"],
    },
    Mutant {
        name: "old-after-withdrawal",
        what: "an older life is accepted after a withdrawal",
        file: "crates/fold/src/order.rs",
        find: "        arriving.birth < gone.birth\n",
        replace: "        false\n",
        found_by: &["s05_"],
    },
    Mutant {
        name: "birthless-withdrawal",
        what: "a withdrawal without a birth acts on another life",
        file: "crates/fold/src/order.rs",
        find: "    let later_birth = leaving.birth.is_some() && leaving.birth > standing.birth;\n",
        replace: "    let later_birth = leaving.birth.is_none() || leaving.birth > standing.birth;\n",
        found_by: &["s06_", "s29_"],
    },
    Mutant {
        name: "old-withdrawal",
        what: "the withdrawal of an older life ends its successor",
        file: "crates/fold/src/order.rs",
        find: "    let later_birth = leaving.birth.is_some() && leaving.birth > standing.birth;\n",
        replace: "    let later_birth = leaving.birth.is_some();\n",
        found_by: &["s06_", "s23_"],
    },
    Mutant {
        name: "flapping",
        what: "of two that live the one that spoke last serves",
        file: "crates/fold/src/order.rs",
        find: "    if is_later(arriving, standing) || silence == Silence::Silent {\n",
        replace: "    if is_later(arriving, standing) || silence != Silence::Silent {\n",
        found_by: &["s08_"],
    },
    Mutant {
        name: "no-takeover",
        what: "who was refused does not take over when the other falls silent",
        file: "crates/fold/src/key_state.rs",
        find: "            clock.age_ms(refused.at.mark) < i64::from(refused.ttl_ms.max(ttl_ms))\n",
        replace: "            clock.age_ms(refused.at.mark) < i64::from(refused.ttl_ms.min(ttl_ms)) - 1_000_000\n",
        found_by: &["s08_", "s26_"],
    },
    Mutant {
        name: "unburied",
        what: "compaction keeps a loser: a refused announcement is not buried",
        file: "crates/fold/src/keeper/statements.rs",
        find: "            .burials_due(partition)\n",
        replace: "            .burials_due(partition)\n            .skip(usize::MAX)\n",
        found_by: &["s05_"],
    },
    Mutant {
        name: "old-position",
        what: "a position older than the tombstones is resumed",
        file: "crates/fold/src/lane.rs",
        find: "            if clock.is_some_and(|clock| clock.lost_tombstones(tombstones_kept_ms)) {\n",
        replace: "            if clock.is_some_and(|clock| clock.lost_tombstones(tombstones_kept_ms * 1000)) {\n",
        found_by: &["s15_"],
    },
    Mutant {
        name: "removes-on-other-log",
        what: "what a replay of another log lacks is removed",
        file: "crates/fold/src/lane.rs",
        find: "        let sameness = if is_uncut || !replay.is_served {\n",
        replace: "        let sameness = if is_uncut || replay.is_served {\n",
        found_by: &["s10_", "s11_", "s12_"],
    },
    Mutant {
        name: "keeps-ghosts",
        what: "what a replay of the same log lacks is kept",
        file: "crates/fold/src/lane.rs",
        find: "        let sameness = if is_uncut || !replay.is_served {\n",
        replace: "        let sameness = if is_uncut && !replay.is_served {\n",
        found_by: &["s15_"],
    },
    Mutant {
        name: "blind-to-cuts",
        what: "a tick whose predecessor was never there is followed",
        file: "crates/fold/src/topic_clock.rs",
        find: "        if let Some(cause) = broken {\n",
        replace: "        if let Some(cause) = broken.filter(|_| record.offset.0 < 0) {\n",
        found_by: &["s12_", "s31_"],
    },
    Mutant {
        name: "blind-to-identity",
        what: "a tick of another log is followed",
        file: "crates/fold/src/topic_clock.rs",
        find: "            && ours != theirs\n            && !is_old\n",
        replace: "            && ours != theirs\n            && is_old\n",
        found_by: &["s11_", "s30_", "a_tick_of_another_log"],
    },
    Mutant {
        name: "never-looks-again",
        what: "who read no tick for a while ticks without looking at its last one again",
        file: "crates/fold/src/replica/doubt.rs",
        find: "        at.is_none_or(|at| now.saturating_sub(*at) >= patience)\n",
        replace: "        at.is_none_or(|at| now.saturating_sub(*at) >= patience * 1_000)\n",
        found_by: &["s30_", "s31_"],
    },
    Mutant {
        name: "half-loaded",
        what: "answers while half of the partitions are loaded",
        file: "crates/fold/src/loading.rs",
        find: "        self.loaded = self.loaded || self.iter_missing().next().is_none();\n",
        replace: "        self.loaded = self.loaded || self.iter_missing().count() <= 2;\n",
        found_by: &["s16_"],
    },
    Mutant {
        name: "newborn",
        what: "takes a log that has just been made at its word",
        file: "crates/fold/src/loading.rs",
        find: "        self.log_time.0 < millis(self.newborn_grace)\n",
        replace: "        self.log_time.0 < millis(self.newborn_grace).min(1)\n",
        found_by: &["s22_"],
    },
    Mutant {
        name: "no-cap",
        what: "forgets the cap",
        file: "crates/fold/src/keeper/room.rs",
        find: "        if *rest == Some(0) || fleet == Some(0) {\n",
        replace: "        if *rest == Some(0) && fleet == Some(u32::MAX) {\n",
        found_by: &["s17_"],
    },
    Mutant {
        name: "sliding-cap",
        what: "the cap slides: when its window is over the next fifth goes",
        file: "crates/fold/src/cap.rs",
        find: "                if overdue < held.cap.max(cap.unwrap_or(0)) {\n",
        replace: "                if overdue < held.cap.max(cap.unwrap_or(0)) || expired_lately == 0 {\n",
        found_by: &["s17_"],
    },
    Mutant {
        name: "unreleased",
        what: "a release lets nothing go",
        file: "crates/fold/src/keeper/room.rs",
        find: "        released_at.is_some_and(|at| overdue.announced <= at)\n",
        replace: "        released_at.is_some_and(|at| overdue.announced > at)\n",
        found_by: &["s17_"],
    },
    Mutant {
        name: "no-grace",
        what: "who has just come back expires at once what it has not heard",
        file: "crates/fold/src/keeper/expiry.rs",
        find: "                && followed_ms >= overdue.ttl_ms\n",
        replace: "                && followed_ms >= 0\n",
        found_by: &["s01_", "a_new_observer_alone"],
    },
    Mutant {
        name: "believes-other-logs",
        what: "offsets that a tick of another log names are taken for this log's",
        file: "crates/fold/src/clock.rs",
        find: "            let missed_to = headers.prev.map(|prev| prev.offset.min(at.offset));\n",
        replace: "            let missed_to = headers.prev.map(|prev| prev.offset);\n",
        found_by: &["s34_"],
    },
    Mutant {
        name: "forgets-definitions",
        what: "a definition that another log does not hold is gone",
        file: "crates/fold/src/config_fold/adopt.rs",
        find: "            let is_unknown = sameness == Sameness::Other || held.origin == Origin::Orphaned;\n",
        replace: "            let is_unknown = sameness == Sameness::Same && held.origin == Origin::Orphaned;\n",
        found_by: &["s10_", "s12_"],
    },
    Mutant {
        name: "confirmed-by-birth",
        what: "an unconfirmed instance is replaced only by who was born later",
        file: "crates/fold/src/rules.rs",
        find: "        let confirmed = |live: &&Live| live.confirmation == Confirmation::Confirmed;\n",
        replace: "        let confirmed = |live: &&Live| live.confirmation == Confirmation::Confirmed || r.record.offset.0 >= 0;\n",
        found_by: &["s23_"],
    },
    Mutant {
        name: "value-blind-digest",
        what: "whatever is announced under a key that lives is taken for a heartbeat",
        file: "crates/fold/src/key_table.rs",
        find: "        AnnouncementDigest(xxh3_128_with_seed(value, self.hash).to_le_bytes())\n",
        replace: "        AnnouncementDigest(xxh3_128_with_seed(&value[..0], self.hash).to_le_bytes())\n",
        found_by: &["s07_", "s08_", "a_change_of_content"],
    },
    Mutant {
        name: "stale-digest",
        what: "a change leaves the digest of what stood before",
        file: "crates/fold/src/key_state.rs",
        find: "            self.digest = content.digest;\n",
        replace: "",
        found_by: &["s08_", "a_change_of_content"],
    },
    Mutant {
        name: "unjudged-heartbeat",
        what: "who says the same bytes is not asked whether it is older",
        file: "crates/fold/src/rules.rs",
        find: "        if let Err(reason) = self.judge_on_live(r, slot, arriving.life) {\n            let content = self.read_content(r, slot, arriving.value)?;\n",
        replace: "        if let Err(reason) = self.judge_on_live(r, slot, arriving.life)\n            && r.record.offset.0 < 0\n        {\n            let content = self.read_content(r, slot, arriving.value)?;\n",
        found_by: &["s08_"],
    },
    Mutant {
        name: "same-words-same-life",
        what: "another life that says the same bytes leaves the partition's digest as it was",
        file: "crates/fold/src/partition_fold.rs",
        find: "            && state.life() == accepted.life\n",
        replace: "",
        found_by: &["s09_", "s13_", "s32_"],
    },
    Mutant {
        name: "only-the-foreseen",
        what: "of a batch only the records that were fetched ahead first are read",
        file: "crates/fold/src/lane.rs",
        find: "        for (index, record) in records.iter().enumerate() {\n",
        replace: "        for (index, record) in records.iter().enumerate().take(RECORDS_FORESEEN) {\n",
        found_by: &["s01_", "s17_"],
    },
];
