// SPDX-License-Identifier: GPL-2.0-only
/*
 * Late data choice for TCP: an upper-layer protocol that sends from a ring in
 * memory shared with the application, and takes a record from it when TCP can
 * send it and not before.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <linux/percpu.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "tcp_ldc.h"

/* TCP's operations of one address family, and ours made of them. */
struct ldc_family {
	const struct proto	*base_prot;
	const struct proto_ops	*base_ops;
	struct proto		prot;
	struct proto_ops	ops;
};

/* What one network namespace's sockets have done. */
struct ldc_net {
	struct ldc_stats __percpu	*stats;
	atomic_t			sockets;
};

struct workqueue_struct *ldc_wq;
static struct ldc_family ldc_families[2];
static DEFINE_MUTEX(ldc_families_lock);
static unsigned int ldc_net_id;
static bool ldc_was_used;

static void ldc_family_build(struct ldc_family *family, struct sock *sk)
{
	family->prot = *sk->sk_prot;
	family->prot.sendmsg = ldc_sendmsg;
	family->prot.setsockopt = ldc_setsockopt;
	family->prot.getsockopt = ldc_getsockopt;
	family->prot.disconnect = ldc_disconnect;
	family->prot.close = ldc_close;
	family->prot.stream_memory_free = ldc_stream_memory_free;

	family->ops = *sk->sk_socket->ops;
	family->ops.sendmsg_locked = ldc_sendmsg_locked;
	family->ops.ioctl = ldc_ioctl;
#ifdef CONFIG_COMPAT
	family->ops.compat_ioctl = ldc_compat_ioctl;
#endif
	family->ops.mmap = ldc_mmap;
	family->ops.poll = ldc_poll;
	family->ops.shutdown = ldc_shutdown;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	family->prot.sendpage = ldc_sendpage;
	family->ops.sendpage_locked = ldc_sendpage_locked;
#endif
	family->base_prot = sk->sk_prot;
	family->base_ops = sk->sk_socket->ops;
}

/* NULL: somebody has put other operations onto this socket. */
static struct ldc_family *ldc_family_of(struct sock *sk)
{
	struct ldc_family *family = &ldc_families[sk->sk_family == AF_INET6];

	if (sk->sk_prot != READ_ONCE(sk->sk_prot_creator))
		return NULL;
	mutex_lock(&ldc_families_lock);
	if (!family->base_prot)
		ldc_family_build(family, sk);
	mutex_unlock(&ldc_families_lock);
	if (family->base_prot != sk->sk_prot ||
	    family->base_ops != sk->sk_socket->ops)
		return NULL;
	return family;
}

/* TCP_ULP: the socket's lock is held. */
static int ldc_attach(struct sock *sk)
{
	struct ldc_net *ln = net_generic(sock_net(sk), ldc_net_id);
	struct ldc_family *family;
	struct ldc_sock *ls;

	if (!((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)))
		return -ENOTCONN;
	if (sk_is_mptcp(sk) || !sk->sk_socket)
		return -EOPNOTSUPP;
	/* A sockmap's, or a user of the socket within the kernel. */
	if (rcu_access_pointer(sk->sk_user_data))
		return -EBUSY;
	family = ldc_family_of(sk);
	if (!family)
		return -EOPNOTSUPP;
	ls = kzalloc(sizeof(*ls), GFP_KERNEL_ACCOUNT);
	if (!ls)
		return -ENOMEM;

	ls->sk = sk;
	ls->net = ln;
	ls->net_stats = ln->stats;
	ls->base_prot = family->base_prot;
	ls->base_ops = family->base_ops;
	ls->horizon = 1;
	ls->lowat = 1;
	INIT_DELAYED_WORK(&ls->work, ldc_pull_work);
	atomic_inc(&ln->sockets);
	WRITE_ONCE(ldc_was_used, true);
	rcu_assign_pointer(inet_csk(sk)->icsk_ulp_data, (void *)ls);
	/* After the pointer: calls that take no lock find it. */
	smp_store_release(&sk->sk_prot, &family->prot);
	smp_store_release(&sk->sk_socket->ops, &family->ops);
	return 0;
}

/* Makes the socket TCP's own again, for close(). Socket's lock held. */
void ldc_restore(struct sock *sk, struct ldc_sock *ls)
{
	if (ls->memory) {
		write_lock_bh(&sk->sk_callback_lock);
		WRITE_ONCE(sk->sk_write_space, ls->base_write_space);
		WRITE_ONCE(sk->sk_state_change, ls->base_state_change);
		write_unlock_bh(&sk->sk_callback_lock);
		ldc_swap_task_frag(sk, ls->use_task_frag);
	}
	if (sk->sk_socket)
		WRITE_ONCE(sk->sk_socket->ops, ls->base_ops);
	WRITE_ONCE(sk->sk_prot, (struct proto *)ls->base_prot);
	rcu_assign_pointer(inet_csk(sk)->icsk_ulp_data, NULL);
	atomic_dec(&ls->net->sockets);
}

static struct tcp_ulp_ops ldc_ulp_ops __read_mostly = {
	.name	= TCP_ULP_LDC,
	.owner	= THIS_MODULE,
	.init	= ldc_attach,
};

static const char *const ldc_stat_names[] = {
	"Pulls", "RecordsTaken", "RecordsSent", "RecordsAcked",
	"RecordsPutBack", "DroppedExpired", "DroppedClosed", "DroppedInvalid",
	"DroppedConnection", "Bytes", "BytesZerocopy", "Sleeps", "Wakes",
	"Notifies", "Retries", "TooLate", "BadIndexes", "BadStates",
	"BadDescriptors", "HorizonMax", "MappedBytes", "Watches", "AcksLate",
	"AcksMissed",
};

static_assert(ARRAY_SIZE(ldc_stat_names) * sizeof(u64) ==
	      sizeof(struct ldc_stats));

static int ldc_proc_show(struct seq_file *seq, void *v)
{
	struct ldc_net *ln = net_generic(seq->private, ldc_net_id);
	unsigned int i;
	int cpu;

	seq_printf(seq, "Sockets\t%d\n", atomic_read(&ln->sockets));
	seq_printf(seq, "RegionBytes\t%llu\n", ldc_memory_bytes());
	for (i = 0; i < ARRAY_SIZE(ldc_stat_names); i++) {
		u64 sum = 0;

		for_each_possible_cpu(cpu)
			sum += READ_ONCE(((u64 *)per_cpu_ptr(ln->stats, cpu))[i]);
		seq_printf(seq, "%s\t%llu\n", ldc_stat_names[i], sum);
	}
	return 0;
}

static int __net_init ldc_net_init(struct net *net)
{
	struct ldc_net *ln = net_generic(net, ldc_net_id);

	ln->stats = alloc_percpu(struct ldc_stats);
	if (!ln->stats)
		return -ENOMEM;
	if (IS_ENABLED(CONFIG_PROC_FS) &&
	    !proc_create_net_single("tcp_ldc", 0444, net->proc_net, ldc_proc_show,
				    NULL)) {
		free_percpu(ln->stats);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit ldc_net_exit(struct net *net)
{
	struct ldc_net *ln = net_generic(net, ldc_net_id);

	remove_proc_entry("tcp_ldc", net->proc_net);
	free_percpu(ln->stats);
}

static struct pernet_operations ldc_net_ops = {
	.init	= ldc_net_init,
	.exit	= ldc_net_exit,
	.id	= &ldc_net_id,
	.size	= sizeof(struct ldc_net),
};

static int __init ldc_init(void)
{
	int err;

	ldc_wq = alloc_workqueue("tcp_ldc", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!ldc_wq)
		return -ENOMEM;
	err = register_pernet_subsys(&ldc_net_ops);
	if (err)
		goto err_wq;
	err = tcp_register_ulp(&ldc_ulp_ops);
	if (err)
		goto err_net;
	return 0;

err_net:
	unregister_pernet_subsys(&ldc_net_ops);
err_wq:
	destroy_workqueue(ldc_wq);
	return err;
}

/* No socket is attached and nothing is mapped: each holds the module. */
static void __exit ldc_exit(void)
{
	tcp_unregister_ulp(&ldc_ulp_ops);
	/* Pages may still be out, in packets. */
	ldc_memory_wait();
	destroy_workqueue(ldc_wq);
	unregister_pernet_subsys(&ldc_net_ops);
	/*
	 * The last socket gave the module back from within ldc_close(), whose
	 * task may have been preempted before it left our code.
	 */
	if (ldc_was_used)
		synchronize_rcu_tasks();
}

module_init(ldc_init);
module_exit(ldc_exit);

MODULE_DESCRIPTION("Late data choice for TCP: sends from a ring shared with the application");
MODULE_AUTHOR("The Freshwire authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
MODULE_ALIAS_TCP_ULP("ldc");
