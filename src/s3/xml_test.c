/* SPDX-License-Identifier: Apache-2.0 */
/* xml_test.c: bodies of requests: read, refused, and mangled at random; texts of replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/query.h"
#include "s3/xml_read.h"
#include "s3/xml_write.h"
#include "support/fuzz.h"

#define LONG "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

static const char delete_body[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
    "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
    "<Object><Key>a&amp;b &#x1F420;</Key></Object><Object><Key>c/..//d</Key>"
    "<VersionId>null</VersionId></Object></Delete>";
static const char complete_body[] =
    "<CompleteMultipartUpload xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
    "<Part><ETag>\"5d41402abc4b2a76b9719d911017c592\"</ETag><PartNumber>1</PartNumber>"
    "<ChecksumCRC32>NhCmhg==</ChecksumCRC32></Part>"
    "<Part><PartNumber>20</PartNumber><ETag>&quot;7d793037a0760186574b0282f2f435e7&quot;</ETag>"
    "</Part></CompleteMultipartUpload>";
static const char tags_body[] = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag>"
                                "<Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>";

static void keys_to_delete(void **state)
{
    (void)state;
    struct s3_delete_body out;
    assert_int_equal(s3_delete_body_read(delete_body, sizeof(delete_body) - 1, &out), S3_OK);
    assert_true(out.is_quiet);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.keys, "a&b \xf0\x9f\x90\xa0");
    assert_string_equal(out.keys + strlen(out.keys) + 1, "c/..//d");
    base_free(out.keys);
}

static void parts_to_complete(void **state)
{
    (void)state;
    struct s3_part *parts;
    size_t count;
    assert_int_equal(
        s3_complete_body_read(complete_body, sizeof(complete_body) - 1, &parts, &count), S3_OK);
    assert_int_equal(count, 2);
    assert_int_equal(parts[0].number, 1);
    assert_string_equal(parts[0].etag, "5d41402abc4b2a76b9719d911017c592");
    assert_int_equal(parts[0].checksum.algorithm, S3_CRC32);
    assert_int_equal(parts[1].number, 20);
    assert_string_equal(parts[1].etag, "7d793037a0760186574b0282f2f435e7");
    base_free(parts);
}

static void tags_become_a_query(void **state)
{
    (void)state;
    char *tags, *at, *key, *value;
    bool is_broken;
    assert_int_equal(s3_tags_body_read(tags_body, sizeof(tags_body) - 1, &tags), S3_OK);
    assert_string_equal(tags, "a%20b=1%262&c=");
    at = tags;
    assert_true(s3_query_next(&at, &key, &value, &is_broken));
    assert_string_equal(key, "a b");
    assert_string_equal(value, "1&2");
    assert_true(s3_query_next(&at, &key, &value, &is_broken));
    assert_string_equal(value, "");
    assert_false(s3_query_next(&at, &key, &value, &is_broken));
    base_free(tags);
    char broken[] = "a%2";
    assert_false(s3_query_decode(broken, true));
    char nul[] = "a%00b";
    assert_false(s3_query_decode(nul, true));
}

static void what_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "<Delete>",
        "<Delete></Delete>",
        "<Delete><Object><Key></Key></Object></Delete>",
        "<Other><Object><Key>a</Key></Object></Other>",
        "<!DOCTYPE d [<!ENTITY a \"aaaaaaaaaa\">]><Delete><Object><Key>&a;</Key></Object></Delete>",
        "<!DOCTYPE d SYSTEM \"file:///etc/passwd\"><Delete><Object><Key>a</Key></Object></Delete>",
        "<Delete><a><b><c><d><e><f><g><h><i></i></h></g></f></e></d></c></b></a></Delete>",
        "<Delete><Object><Key>\xff\xfe</Key></Object></Delete>",
    };
    struct s3_delete_body out;
    char region[32];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(s3_delete_body_read(bad[i], strlen(bad[i]), &out), S3_MALFORMED_XML);
    static const char with_condition[] =
        "<Delete><Object><Key>a</Key><ETag>b</ETag></Object></Delete>";
    assert_int_equal(s3_delete_body_read(with_condition, sizeof(with_condition) - 1, &out),
                     S3_NOT_IMPLEMENTED);
    assert_int_equal(s3_bucket_body_read("", 0, region), S3_OK);
    assert_int_equal(s3_bucket_body_read("<a", 2, region), S3_MALFORMED_XML);
}

/* Too many keys, and a text that is too long. */
static void there_are_limits(void **state)
{
    (void)state;
    struct s3_delete_body out;
    size_t room = 100000, used;
    char *body = malloc(room);
    used = (size_t)sprintf(body, "<Delete>");
    for (int i = 0; i <= S3_DELETE_KEYS_MAX; i++)
        used += (size_t)sprintf(body + used, "<Object><Key>%d</Key></Object>", i);
    used += (size_t)sprintf(body + used, "</Delete>");
    assert_int_equal(s3_delete_body_read(body, used, &out), S3_MALFORMED_XML);
    used = (size_t)sprintf(body, "<Delete><Object><Key>");
    memset(body + used, 'k', 5000);
    used += 5000;
    used += (size_t)sprintf(body + used, "</Key></Object></Delete>");
    assert_int_equal(s3_delete_body_read(body, used, &out), S3_MALFORMED_XML);
    free(body);
}

/* An element that is empty ends although its start was refused. */
static void names_have_a_limit(void **state)
{
    (void)state;
    struct s3_delete_body out;
    size_t length = 16 << 20;
    char *body = malloc(length + 64);
    size_t used = (size_t)sprintf(body, "<Delete><Object><");
    memset(body + used, 'n', length);
    used += length;
    used += (size_t)sprintf(body + used, "/></Object></Delete>");
    assert_int_equal(s3_delete_body_read(body, used, &out), S3_MALFORMED_XML);
    free(body);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct s3_delete_body deleted;
    struct s3_part *parts;
    size_t part_count;
    char *tags, region[32];
    (void)user;
    (void)round;
    if (s3_delete_body_read(text, count, &deleted) == S3_OK) {
        assert_in_range(deleted.count, 1, S3_DELETE_KEYS_MAX);
        base_free(deleted.keys);
    }
    if (s3_complete_body_read(text, count, &parts, &part_count) == S3_OK)
        base_free(parts);
    if (s3_tags_body_read(text, count, &tags) == S3_OK)
        base_free(tags);
    s3_bucket_body_read(text, count, region);
}

/* Whatever comes of it, nothing is read or written where it should not be. */
static void mangled_bodies_do_no_harm(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT(delete_body), FUZZ_TEXT(complete_body), FUZZ_TEXT(tags_body),
        FUZZ_TEXT("<CreateBucketConfiguration><LocationConstraint>eu-west-3</LocationConstraint>"
                  "</CreateBucketConfiguration>")};
    static const char *const words[] = {
        "<Object><Key>", "</Key></Object>", "<Part>", "</Part>", "<PartNumber>",
        "<Tag>",         "</Tag>",          "<a>",    "</a>",    "&amp;",
        "&#0;",          "<![CDATA[",       "]]>",    "<?a?>",   "<!--",
        "-->",           "<!DOCTYPE a>",    NULL};
    struct fuzz fuzz = FUZZ(texts, words, 10000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

static void replies_are_escaped(void **state)
{
    (void)state;
    struct s3_xml xml;
    s3_xml_begin(&xml, "R");
    s3_xml_text(&xml, "a", "<&>\"\r\x01z");
    s3_xml_key(&xml, "k", "a b+/\xc3\xa9~", true);
    s3_xml_time(&xml, "t", INT64_C(1700000000123));
    s3_xml_etag(&xml, "abc");
    assert_int_equal(s3_xml_end(&xml, "R"), S3_OK);
    xml.text[xml.bytes] = '\0';
    assert_string_equal(strchr(xml.text, '\n') + 1,
                        "<R xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                        "<a>&lt;&amp;&gt;&quot;&#13;\xef\xbf\xbdz</a><k>a%20b%2B/%C3%A9~</k>"
                        "<t>2023-11-14T22:13:20.123Z</t><ETag>&quot;abc&quot;</ETag></R>");
    s3_xml_release(&xml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_to_delete),
        cmocka_unit_test(parts_to_complete),
        cmocka_unit_test(tags_become_a_query),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(there_are_limits),
        cmocka_unit_test(names_have_a_limit),
        cmocka_unit_test(mangled_bodies_do_no_harm),
        cmocka_unit_test(replies_are_escaped),
    };
    return cmocka_run_group_tests_name("s3 xml", tests, NULL, NULL);
}
